"""Nouns and laws of the product: values and functions of values, no I/O, no clock, no chance."""

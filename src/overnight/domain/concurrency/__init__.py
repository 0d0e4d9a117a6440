"""How many requests a route is given at once: `state` is what is seen and known, `rule` what follows from it.

`compare` is the part of the rule that tries numbers.
"""

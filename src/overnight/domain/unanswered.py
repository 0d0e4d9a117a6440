"""What is said of a batch as a whole that ends without responses, so that nobody has to read every line."""

from __future__ import annotations

from collections.abc import Sequence

from overnight.domain.codes import ANSWERS

MOST_CODES = 3
"""Codes that are named; the rest is in the lines."""


def why(codes: Sequence[tuple[str, int]], total: int) -> tuple[str, str]:
    """The most frequent code, and a sentence with up to MOST_CODES of them.

    `codes` are codes of requests' errors with their counts, the most frequent first; at least one.
    """
    named = _name(codes)
    first = codes[0][0]
    means = f" {ANSWERS[first]}" if first in ANSWERS else ""
    whom = "The request was not answered" if total == 1 else f"None of the {total:,} requests was answered"
    return first, f"{whom}: {named}.{means} The error of each request says more."


def why_expired(codes: Sequence[tuple[str, int]], unanswered: int, total: int) -> tuple[str, str]:
    """`batch_expired`, and a sentence that says how many requests of a batch the closing window left unanswered.

    `codes` as for `why`.
    """
    whom = f"{unanswered:,} of its {total:,} requests" if total > 1 else "its request"
    says = f"The batch's window closed before {whom} had a response: {_name(codes)}."
    return "batch_expired", f"{says} The error of each request says more; a retry of the batch runs them again."


def _name(codes: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"`{code}` ({count:,})" for code, count in codes[:MOST_CODES])

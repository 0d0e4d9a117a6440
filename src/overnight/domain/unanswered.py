"""What is said of a batch as a whole when no request of it was answered, so that nobody has to read every line."""

from __future__ import annotations

from collections.abc import Sequence

from overnight.domain.codes import ANSWERS

MOST_CODES = 3
"""Codes that are named; the rest is in the lines."""


def why(codes: Sequence[tuple[str, int]], total: int) -> tuple[str, str]:
    """The most frequent code, and a sentence with up to MOST_CODES of them.

    `codes` are codes of requests' errors with their counts, the most frequent first; at least one.
    """
    named = ", ".join(f"`{code}` ({count:,})" for code, count in codes[:MOST_CODES])
    first = codes[0][0]
    means = f" {ANSWERS[first]}" if first in ANSWERS else ""
    whom = "The request was not answered" if total == 1 else f"None of the {total:,} requests was answered"
    return first, f"{whom}: {named}.{means} The error of each request says more."

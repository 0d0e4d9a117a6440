"""How long to look for faults: a few seconds among all other tests, minutes with `make fuzz`."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

SECONDS = int(os.environ.get("OVERNIGHT_FUZZ_SECONDS", "0"))
"""For each of the tests; 0: as few examples as fit into the suite, the same ones every time."""

_A_SECOND = 15
"""Examples that a test makes in a second, about."""


def examples(few: int) -> settings:
    """How many examples a test makes: `few`, or as many as `SECONDS` has time for."""
    # The database is fresh for the test, not for each of its examples: they tidy up behind themselves.
    slow = (HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large)
    return settings(
        max_examples=SECONDS * _A_SECOND if SECONDS else few,
        derandomize=not SECONDS,
        database=None,
        deadline=None,
        print_blob=True,
        suppress_health_check=slow,
    )

"""Public ids."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight.domain import ids

MOMENT = st.integers(0, 2**48 - 1)


@given(MOMENT)
def test_an_id_is_a_prefix_and_32_lower_case_hexadecimal_digits_and_reads_back(moment: int) -> None:
    value = ids.new(moment)

    shown = ids.show(ids.BATCH, value)

    assert re.fullmatch(r"batch_[0-9a-f]{32}", shown)
    assert ids.read(ids.BATCH, shown) == value
    assert value.version == 7


@given(MOMENT, MOMENT)
def test_ids_are_ordered_by_their_moment(one: int, other: int) -> None:
    if one != other:
        assert (ids.new(one).hex < ids.new(other).hex) == (one < other)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "batch_",
        "file-" + "0" * 32,
        "0" * 32,
        "batch_" + "0" * 31,
        "batch_" + "0" * 33,
        "batch_" + "A" * 32,
        "batch_" + "0" * 32 + "\n",
        "batch_batch_" + "0" * 26,
        "batch_" + "\u0660" * 32,
    ],
)
def test_any_other_form_reads_like_an_id_that_nobody_has(text: str) -> None:
    assert ids.read(ids.BATCH, text) is None


@given(MOMENT, st.integers(0, 2**31 - 1))
def test_a_requests_id_says_its_line_within_its_batch_and_in_no_other(moment: int, line: int) -> None:
    batch, other = ids.new(moment), ids.new(moment)

    shown = ids.of_request(batch, line)

    assert re.fullmatch(r"batch_req_[0-9a-f]{32}", shown)
    assert ids.line_of(batch, shown) == line
    assert ids.line_of(other, shown) is None


@given(MOMENT, st.integers(0, 2**31 - 2))
def test_the_ids_of_a_batchs_requests_are_in_submission_order(moment: int, line: int) -> None:
    batch = ids.new(moment)

    assert ids.of_request(batch, line) < ids.of_request(batch, line + 1)


def test_new_names_of_requests_are_ids_in_order_of_time() -> None:
    early, late = ids.new_text(ids.REQUEST, 1_000), ids.new_text(ids.REQUEST, 1_001)

    assert early < late
    for text in (early, late):
        value = ids.read(ids.REQUEST, text)
        assert value is not None
        assert (value.version, value.variant) == (7, "specified in RFC 4122")
    assert len({ids.new_text(ids.REQUEST, 1_000) for _ in range(1_000)}) == 1_000

"""The headers of downloads: ranges, conditions, names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight.api.download import disposition, has_changed, is_known, wanted_range
from overnight.domain.errors import RangeNotSatisfiable


@given(st.integers(1, 50), st.data())
def test_a_range_header_gives_the_bytes_that_it_names(size: int, draw: st.DataObject) -> None:
    data = bytes(range(size))
    first = draw.draw(st.integers(0, size - 1))
    last = draw.draw(st.integers(first, 2 * size))

    for header, expected in (
        (f"bytes={first}-{last}", data[first : last + 1]),
        (f"bytes={first}-", data[first:]),
        (f"bytes=-{last + 1}", data[-(last + 1) :]),
    ):
        wanted = wanted_range(header, size)
        assert wanted is not None
        assert data[slice(*wanted)] == expected


@pytest.mark.parametrize("header", ["Bytes=0-1", "bytes = 0-1", "bytes=0-1 "])
def test_a_range_unit_in_any_case_is_understood(header: str) -> None:
    assert wanted_range(header, 10) == (0, 2)


@pytest.mark.parametrize(
    "header",
    [
        None, "", "bytes", "bytes=", "bytes=-", "bytes=a-b", "bytes=5-2", "bytes=0-1,3-4", "bytes=0-1,", "lines=0-1",
        "bytes=1", "bytes=+1-2", "bytes=1.0-2", "bytes=--1", "bytes=0x0-1", "bytes=٠-١", "0-1",
        "bytes=" + "9" * 5_000 + "-",
    ],
)  # fmt: skip
def test_what_is_malformed_or_several_ranges_or_of_another_unit_means_the_whole_file(header: str | None) -> None:
    assert wanted_range(header, 10) is None


@pytest.mark.parametrize("header", ["bytes=10-", "bytes=10-20", "bytes=-0", "bytes=" + "9" * 500 + "-"])
def test_a_range_that_holds_no_byte_cannot_be_satisfied(header: str) -> None:
    with pytest.raises(RangeNotSatisfiable):
        wanted_range(header, 10)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, False), ('"a"', False), (' "a" ', False), ('W/"a"', True), ('"b"', True),
        ("Mon, 01 Jan 2026 00:00:00 GMT", True),
    ],
)  # fmt: skip
def test_a_range_of_another_state_of_the_file_is_not_sent(header: str | None, expected: bool) -> None:
    assert has_changed(header, '"a"') is expected


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, False), ("", False), ('"a"', True), ('W/"a"', True), ("*", True), ('"b", W/"a"', True),
        ('"b"', False), ("a", False),
    ],
)  # fmt: skip
def test_bytes_that_the_caller_has_are_known(header: str | None, expected: bool) -> None:
    assert is_known(header, '"a"') is expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("in.jsonl", "attachment; filename=\"in.jsonl\"; filename*=UTF-8''in.jsonl"),
        ('a "b" 100%.jsonl', "attachment; filename=\"a _b_ 100_.jsonl\"; filename*=UTF-8''a%20%22b%22%20100%25.jsonl"),
        ("問.jsonl", "attachment; filename=\"_.jsonl\"; filename*=UTF-8''%E5%95%8F.jsonl"),
    ],
)
def test_a_download_is_named_for_old_and_new_clients(name: str, expected: str) -> None:
    assert disposition(name) == expected


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=255))
def test_no_name_breaks_out_of_its_header(name: str) -> None:
    header = disposition(name)

    assert header.isascii()
    assert header.isprintable()
    assert header.count('"') == 2

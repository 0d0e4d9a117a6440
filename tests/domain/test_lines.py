"""What is refused of an input file, and that it does not matter how its bytes arrive."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight.domain import lines
from overnight.domain.codes import PROBLEMS
from overnight.domain.limits import DEEPEST_NESTING, LONGEST_CUSTOM_ID, MOST_PROBLEMS, Limits
from overnight.domain.lines import FileCheck, LineError, Problem, Splitter, parse

BOM = b"\xef\xbb\xbf"
LONGEST = 300


def line(custom_id: Any = "a", **changed: Any) -> bytes:
    request = {
        "custom_id": custom_id,
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {"model": "m", "messages": [{"role": "user", "content": "hi"}]},
    }
    return json.dumps(request | changed).encode()


def with_body(**changed: Any) -> bytes:
    return line(body={"model": "m", "messages": [{"role": "user", "content": "hi"}]} | changed)


def with_value(written: bytes) -> bytes:
    """A line with a value written exactly so."""
    return with_body(chat_template_kwargs={"x": 0}).replace(b'"x": 0', b'"x": ' + written)


def nested(depth: int, opening: str = "[", closing: str = "]") -> bytes:
    """A line in which arrays or objects are `depth` deep; the line, its body and a field of it are the first three."""
    return with_value((opening * (depth - 3) + ("1" if opening != "[" else "") + closing * (depth - 3)).encode())


def without(name: str) -> bytes:
    request = json.loads(line())
    del request[name]
    return json.dumps(request).encode()


def refusal(text: bytes) -> LineError:
    with pytest.raises(LineError) as caught:
        parse(text)
    return caught.value


def check(data: bytes, *, cuts: list[int] | None = None, limits: Limits | None = None) -> FileCheck:
    """Check a whole file, cut into pieces at these places, with its repeated ids."""
    places = [0, *sorted(cuts or []), len(data)]
    pieces = [data[a:b] for a, b in pairwise(places)]
    found = FileCheck(limits or Limits())
    for piece in pieces:
        found.feed(piece)
    found.end()
    suspects = found.suspects()
    if suspects:
        confirm = found.confirm(suspects)
        for piece in pieces:
            if piece:
                confirm(piece)
        confirm(b"")
    return found


def codes(data: bytes, **given: Any) -> list[tuple[str, int | None]]:
    return [(p.code, p.line) for p in check(data, **given).problems]


BAD: dict[str, tuple[bytes, str, str | None]] = {
    "not JSON": (b"hello", "invalid_json_line", None),
    "an open object": (b'{"custom_id": "a"', "invalid_json_line", None),
    "two values": (line() + line(), "invalid_json_line", None),
    "an array": (b"[]", "invalid_json_line", None),
    "a string": (b'"x"', "invalid_json_line", None),
    "single quotes": (line().replace(b'"', b"'"), "invalid_json_line", None),
    "a trailing comma": (line()[:-1] + b",}", "invalid_json_line", None),
    "a comment": (line() + b"// x", "invalid_json_line", None),
    "NaN": (with_value(b"NaN"), "invalid_json_line", None),
    "Infinity": (with_value(b"Infinity"), "invalid_json_line", None),
    "minus Infinity": (with_value(b"-Infinity"), "invalid_json_line", None),
    "1e999": (with_value(b"1e999"), "invalid_json_line", None),
    "minus 1E+999": (with_value(b"-1E+999"), "invalid_json_line", None),
    "1e0400": (with_value(b"1e0400"), "invalid_json_line", None),
    "1e999 deep inside": (with_value(b'[{"y": [1e999]}]'), "invalid_json_line", None),
    "250 digits and e99": (with_value(b"9" * 250 + b"e99"), "invalid_json_line", None),
    "310 digits and a point": (with_value(b"9" * 310 + b".5"), "invalid_json_line", None),
    "a repeated key": (line()[:-1] + b', "custom_id": "b"}', "invalid_json_line", None),
    "a repeated key deep inside": (with_value(b'[{"y": 1, "y": 1}]'), "invalid_json_line", None),
    "a repeated key, once escaped": (with_value(b'{"y": 1, "\\u0079": 1}'), "invalid_json_line", None),
    "half a surrogate pair": (with_value(b'"\\ud83d"'), "invalid_json_line", None),
    "a control character": (with_value(b'"\x01"'), "invalid_json_line", None),
    "nesting of 129": (nested(DEEPEST_NESTING + 1), "invalid_json_line", None),
    "objects nested 129 deep": (nested(DEEPEST_NESTING + 1, '{"y":', "}"), "invalid_json_line", None),
    "nesting of 100,000": (nested(100_000), "invalid_json_line", None),
    "invalid UTF-8": (with_value(b'"\xff"'), "invalid_utf8", None),
    "a surrogate in UTF-8": (with_value(b'"\xed\xa0\x80"'), "invalid_utf8", None),
    "no custom_id": (without("custom_id"), "missing_required_parameter", "custom_id"),
    "no method": (without("method"), "missing_required_parameter", "method"),
    "no url": (without("url"), "missing_required_parameter", "url"),
    "no body": (without("body"), "missing_required_parameter", "body"),
    "a field nobody knows": (line(priority=1), "invalid_parameter", "priority"),
    "an empty custom_id": (line(""), "invalid_parameter", "custom_id"),
    "a number as custom_id": (line(1), "invalid_parameter", "custom_id"),
    "a custom_id of 513": (line("é" * (LONGEST_CUSTOM_ID + 1)), "invalid_parameter", "custom_id"),
    "method GET": (line(method="GET"), "invalid_method", "method"),
    "method post": (line(method="post"), "invalid_method", "method"),
    "another url": (line(url="/v1/images"), "invalid_url", "url"),
    "a url with a slash": (line(url="/v1/chat/completions/"), "invalid_url", "url"),
    "a list as url": (line(url=["/v1/chat/completions"]), "invalid_url", "url"),
    "a body that is no object": (line(body=[]), "invalid_parameter", "body"),
    "no model": (line(body={"messages": [{}]}), "missing_required_parameter", "body.model"),
    "a model of null": (with_body(model=None), "missing_required_parameter", "body.model"),
    "an empty model": (with_body(model=""), "invalid_parameter", "body.model"),
    "a model that is a number": (with_body(model=1), "invalid_parameter", "body.model"),
    "model auto": (with_body(model="auto"), "auto_model_not_allowed", "body.model"),
    "model auto-fast": (with_body(model="auto-fast"), "auto_model_not_allowed", "body.model"),
    "stream true": (with_body(stream=True), "streaming_not_supported", "body.stream"),
    "stream 0": (with_body(stream=0), "invalid_parameter", "body.stream"),
    "stream as text": (with_body(stream="false"), "invalid_parameter", "body.stream"),
    "no messages": (line(body={"model": "m"}), "missing_required_parameter", "body.messages"),
    "empty messages": (with_body(messages=[]), "invalid_parameter", "body.messages"),
    "messages of text": (with_body(messages=["hi"]), "invalid_parameter", "body.messages[0]"),
    "a field of the body nobody knows": (with_body(max_token=5), "invalid_parameter", "body.max_token"),
    "a field of the body out of its range": (with_body(temperature=2.1), "invalid_parameter", "body.temperature"),
    "no prompt": (
        line(url="/v1/completions", body={"model": "m"}),
        "missing_required_parameter",
        "body.prompt",
    ),
    "no input": (line(url="/v1/embeddings", body={"model": "m"}), "missing_required_parameter", "body.input"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_line_is_refused_with_its_code_and_field(name: str) -> None:
    text, code, param = BAD[name]

    error = refusal(text)

    assert (error.code, error.param) == (code, param)
    assert error.code in PROBLEMS
    assert error.message.endswith(".")
    assert len(error.message) < 300


GOOD = {
    "a usual line": line(),
    "a custom_id of 512 code points": line("𝄞" * LONGEST_CUSTOM_ID),
    "a zero in a custom_id": line("a\0b"),
    "stream false": with_body(stream=False),
    "stream null": with_body(stream=None),
    "a large integer": with_value(b"9" * 400),
    "the largest double": with_value(b"1.7976931348623157e308"),
    "308 zeros and a point": with_value(b"1" + b"0" * 308 + b".0"),
    "a number that is almost nothing": with_value(b"1e-999"),
    "an id that looks like a large number": line(
        "7e99", body={"model": "m", "messages": [{"role": "user", "content": "1e999 " * 9}]}
    ),
    "brackets in text": with_body(user="[" * 1_000),
    "nesting of 128": nested(DEEPEST_NESTING),
    "objects nested 128 deep": nested(DEEPEST_NESTING, '{"y":', "}"),
    "keys that differ in case": with_value(b'{"y": 1, "Y": 2}'),
    "the same key in two objects": with_value(b'[{"y": 1}, {"y": 1}]'),
    "a surrogate pair": with_value(b'"\\ud83d\\ude00"'),
    "white space around": b" \t" + line() + b" ",
    "completions": line(url="/v1/completions", body={"model": "m", "prompt": "hi"}),
    "embeddings": line(url="/v1/embeddings", body={"model": "m", "input": ["hi"]}),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_line_is_accepted(name: str) -> None:
    assert parse(GOOD[name])["custom_id"]


def test_what_a_caller_wrote_into_a_field_name_can_be_stored_and_shown() -> None:
    error = refusal(line(**{"a\0" + "b" * 500: 1}))

    assert error.param == "a\ufffd" + "b" * 78
    assert len(error.message) < 300


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("start", [b"", BOM])
@pytest.mark.parametrize("last", [True, False])
def test_line_ends_a_byte_order_mark_and_a_missing_last_line_end_make_no_difference(
    end: bytes, start: bytes, last: bool
) -> None:
    data = start + end.join([line("a"), b"", b" \t ", line("b")]) + (end if last else b"")

    found = check(data)

    assert (found.lines, found.problems) == (2, [])


def test_a_byte_order_mark_anywhere_else_is_not_json() -> None:
    assert codes(line("a") + b"\n" + BOM + line("b")) == [("invalid_json_line", 1)]


def test_blank_lines_count_as_lines_of_the_file_but_not_as_requests() -> None:
    found = check(b"\n\n" + b"bad\n\n" + line("a") + b"\n")

    assert found.lines == 2
    assert [p.line for p in found.problems] == [2]


@pytest.mark.parametrize("data", [b"", b"\n", b"\r\n \n\t", BOM, BOM + b"\r\n"])
def test_a_file_without_a_request_has_a_problem_of_its_own(data: bytes) -> None:
    assert codes(data) == [("empty_file", None)]


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
@pytest.mark.parametrize("start", [b"", BOM])
@pytest.mark.parametrize("step", [1, 7, 1_000])
def test_a_line_at_the_limit_is_accepted_and_one_byte_more_is_too_long(end: bytes, start: bytes, step: int) -> None:
    limits = Limits(line_bytes=LONGEST)
    good = line("a").ljust(LONGEST)

    for text, expected in ((good, []), (good + b" ", [("line_too_long", 0)])):
        data = start + text + end
        assert codes(data, cuts=list(range(step, len(data), step)), limits=limits) == expected


def test_white_space_over_the_limit_is_too_long_however_it_arrives() -> None:
    data = b" " * (LONGEST + 1) + b"\n"

    for cuts in ([], [LONGEST]):
        assert codes(data, cuts=cuts, limits=Limits(line_bytes=LONGEST)) == [("line_too_long", 0)]


def test_the_splitter_holds_no_more_than_a_line_of_the_longest_size() -> None:
    splitter = Splitter(LONGEST)
    for _ in range(100):
        assert list(splitter.feed(b"x" * LONGEST)) == []
        assert len(splitter._rest) <= LONGEST + 4

    assert list(splitter.feed(b"\n" + b"y\n")) == [(0, None), (1, b"y")]


def test_a_repeated_custom_id_is_named_with_both_lines() -> None:
    data = b"\n".join([line("a"), line("b"), b"", line("a"), line("b"), line("a")])

    found = check(data)

    assert [(p.code, p.line, p.param) for p in found.problems] == [
        ("duplicate_custom_id", n, "custom_id") for n in (3, 4, 5)
    ]
    assert ["line 1" in p.message for p in found.problems] == [True, False, True]


def test_ids_are_compared_byte_for_byte() -> None:
    assert codes(b"\n".join([line("é"), line("e\u0301"), line("É"), line("é ")])) == []
    assert codes(b"\n".join([line("é"), line("é").replace(b"\\u00e9", "é".encode())])) == [("duplicate_custom_id", 1)]


def test_equal_hashes_of_different_ids_are_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "hash", lambda custom_id: len(custom_id), raising=False)

    assert codes(b"\n".join([line("a"), line("b"), line("cc"), line("b")])) == [("duplicate_custom_id", 3)]


def test_all_problems_are_counted_and_the_first_thousand_kept() -> None:
    found = check(b"bad\n" * (MOST_PROBLEMS + 5))

    assert (found.problem_count, len(found.problems)) == (MOST_PROBLEMS + 5, MOST_PROBLEMS)
    assert found.problems[-1] == Problem("invalid_json_line", MOST_PROBLEMS - 1, found.problems[0].message)


def test_many_repeated_ids_are_all_counted_and_few_are_held() -> None:
    data = b"\n".join([line(str(n)) for n in range(2_000)] * 2)
    found = FileCheck(Limits())
    found.feed(data)
    found.end()

    suspects = found.suspects()

    assert len(suspects) == 2 * MOST_PROBLEMS
    confirm = found.confirm(suspects)
    confirm(data)
    confirm(b"")
    assert found.problem_count == 2_000
    assert [p.line for p in found.problems] == list(range(2_000, 3_000))


def test_ids_are_kept_of_no_more_requests_than_a_batch_may_hold() -> None:
    at_most, too_many = FileCheck(Limits(intake=3)), FileCheck(Limits(intake=3))
    for number in range(3):
        at_most.feed(line(str(number)) + b"\n")
    too_many.feed((line("0") + b"\n") * 10)

    assert at_most.is_whole
    assert not too_many.is_whole
    assert too_many.lines == 10
    assert len(too_many._hashes) == 3


def test_checking_gives_way_after_every_few_hundred_lines() -> None:
    found = FileCheck(Limits())

    turns = sum(1 for _ in found.steps(b"bad\n" * 10 * lines.STEP_LINES))

    assert (turns, found.lines) == (10, 10 * lines.STEP_LINES)


pieces = st.sampled_from(
    [line("a"), line("b"), b"bad", b" ", b"", b"\r", BOM, b"\n", b"\n", b"\r\n", b" " * LONGEST, b"\xff"]
)


@given(st.lists(pieces, max_size=30).map(b"".join), st.data())
def test_a_file_is_judged_the_same_however_it_is_cut(data: bytes, draw: st.DataObject) -> None:
    cuts = draw.draw(st.lists(st.integers(0, len(data)), max_size=20))
    limits = Limits(line_bytes=LONGEST)

    whole, cut = check(data, limits=limits), check(data, cuts=cuts, limits=limits)

    assert (cut.lines, cut.problem_count, cut.problems) == (whole.lines, whole.problem_count, whole.problems)


values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@given(values)
def test_exactly_the_lines_whose_numbers_are_all_finite_are_accepted(value: object) -> None:
    text = json.dumps(value).replace("NaN", "1e999").replace("Infinity", "1e999")
    try:
        json.dumps(value, allow_nan=False)
        is_finite = True
    except ValueError:
        is_finite = False

    try:
        parse(with_value(text.encode()))
    except LineError:
        assert not is_finite
    else:
        assert is_finite

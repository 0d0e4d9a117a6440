"""The multipart form: fields in any order, hostile ones kept small."""

from __future__ import annotations

import tracemalloc
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight.domain.errors import BadRequest, InvalidParameter, MissingParameter, UnsupportedMediaType
from overnight.files.form import MOST_BESIDE_FILE, Form, boundary_of
from tests.files.forms import BOUNDARY, PURPOSE, file_part, form, part

CONTENT = b'{"a": 1}\r\n\r\n--not-the-end\r\n'
SECONDS = b'name="expires_after[seconds]"'
ANCHOR = b'name="expires_after[anchor]"', b"created_at"


def read(body: bytes, step: int | None = None) -> tuple[Form, bytes]:
    step = step or len(body) or 1
    read_form = Form(BOUNDARY)
    found = b"".join(b"".join(read_form.feed(body[i : i + step])) for i in range(0, len(body), step))
    read_form.end()
    return read_form, found


def feed_all(read_form: Form, body: bytes) -> None:
    for start in range(0, len(body), 65_536):
        read_form.feed(body[start : start + 65_536])


@pytest.mark.parametrize("file_first", [True, False])
def test_fields_may_come_in_any_order(file_first: bool) -> None:
    parts = [file_part(CONTENT), part(*PURPOSE), part(*ANCHOR), part(SECONDS, b"3600")]

    read_form, content = read(form(*(parts if file_first else reversed(parts))))

    assert content == CONTENT
    assert read_form.filename == "in.jsonl"
    assert read_form.life() == timedelta(hours=1)


@given(st.integers(1, 400), st.binary(max_size=200))
def test_the_file_comes_through_byte_for_byte_however_the_body_is_cut(step: int, content: bytes) -> None:
    content += b"\r\n--" + BOUNDARY[:-1] + b"\r\n\r" + content

    assert read(form(file_part(content), part(*PURPOSE)), step)[1] == content


def test_unknown_fields_are_ignored_files_among_them() -> None:
    other = part(b'name="other"; filename="other.txt"', b"x" * 1_000)

    read_form, content = read(form(other, file_part(CONTENT), part(*PURPOSE), part(b'name="user"', b"me")))

    assert content == CONTENT
    assert read_form.fields == {"purpose": "batch"}
    assert read_form.life() is None


@pytest.mark.parametrize("step", [1, 7, 1_000])
@pytest.mark.parametrize("preamble", [b"\r\n", b"For old readers.\r\n", b"--\r\n--" + BOUNDARY[:-1] + b"\n\r\n"])
def test_what_goes_before_the_first_boundary_is_left_out(preamble: bytes, step: int) -> None:
    assert read(preamble + form(file_part(CONTENT), part(*PURPOSE)), step)[1] == CONTENT


def test_a_boundary_in_the_middle_of_a_line_does_not_begin_a_form() -> None:
    with pytest.raises(BadRequest, match="boundary"):
        read(b"x" + form())


def test_a_file_field_without_a_file_name_is_a_file() -> None:
    read_form, content = read(form(file_part(CONTENT, b""), part(*PURPOSE)))

    assert (content, read_form.filename) == (CONTENT, "upload")


REFUSED: dict[str, tuple[bytes, type[BadRequest], str | None]] = {
    "no file": (form(part(*PURPOSE)), MissingParameter, "file"),
    "two files": (form(file_part(b"a"), file_part(b"b"), part(*PURPOSE)), InvalidParameter, "file"),
    "no purpose": (form(file_part(b"a")), MissingParameter, "purpose"),
    "another purpose": (form(part(b'name="purpose"', b"fine-tune"), file_part(b"a")), InvalidParameter, "purpose"),
    "two purposes": (form(part(*PURPOSE), part(*PURPOSE), file_part(b"a")), InvalidParameter, "purpose"),
    "a purpose of megabytes": (form(part(b'name="purpose"', b"b" * 5_000)), InvalidParameter, "purpose"),
    "another anchor": (
        form(part(b'name="expires_after[anchor]"', b"now")),
        InvalidParameter,
        "expires_after[anchor]",
    ),
    "an encoded file": (
        form(part(b'name="file"', b"aGk=", b"Content-Transfer-Encoding: base64\r\n")),
        InvalidParameter,
        "file",
    ),
    "no form": (form(), MissingParameter, "file"),
    "nothing": (b"", BadRequest, None),
    "no closing boundary": (form(part(*PURPOSE), file_part(b"a"))[:-4], BadRequest, None),
    "cut in the file": (form(part(*PURPOSE), file_part(b"a" * 100))[:200], BadRequest, None),
    "another boundary": (form(part(*PURPOSE)).replace(BOUNDARY, BOUNDARY + b"x"), BadRequest, None),
    "JSON": (b'{"purpose": "batch"}', BadRequest, None),
    "a header without a name": (form(b"--" + BOUNDARY + b"\r\n: x\r\n\r\n\r\n"), BadRequest, None),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_form_is_refused_with_the_field(name: str) -> None:
    body, kind, param = REFUSED[name]

    with pytest.raises(BadRequest) as caught:
        read(body)

    assert type(caught.value) is kind
    assert caught.value.param == param


@pytest.mark.parametrize("seconds", [b"3599", b"2592001", b"-3600", b"3600.5", b"1e4", b"", b" 3600", "٣٦٠٠".encode()])
def test_a_life_out_of_its_range_or_not_a_number_is_refused(seconds: bytes) -> None:
    with pytest.raises(InvalidParameter) as caught:
        read(form(part(*ANCHOR), part(SECONDS, seconds), part(*PURPOSE), file_part(b"a")))

    assert caught.value.param == "expires_after[seconds]"


@pytest.mark.parametrize("seconds", [3_600, 2_592_000])
def test_the_shortest_and_the_longest_life_are_accepted(seconds: int) -> None:
    read_form, _ = read(form(part(*ANCHOR), part(SECONDS, str(seconds).encode()), part(*PURPOSE), file_part(b"a")))

    assert read_form.life() == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("given_part", "missing"),
    [(part(*ANCHOR), "expires_after[seconds]"), (part(SECONDS, b"3600"), "expires_after[anchor]")],
)
def test_half_an_expiry_is_refused(given_part: bytes, missing: str) -> None:
    with pytest.raises(MissingParameter) as caught:
        read(form(given_part, part(*PURPOSE), file_part(b"a")))[0].life()

    assert caught.value.param == missing


def test_a_file_name_of_thousands_of_characters_is_no_reason_to_refuse_a_form() -> None:
    body = form(part(*PURPOSE), part(b'name="file"; filename="%b.jsonl"' % (b"n" * 20_000), b"{}"))
    read_form, found = read(body, 1_000)
    assert found == b"{}"
    assert read_form.filename is not None


HOSTILE = {
    "a million fields": b"".join(part(b'name="f%d"' % n, b"x") for n in range(20_000)),
    "a field of megabytes": part(b'name="f"', b"x" * (MOST_BESIDE_FILE + 1)),
    "headers without end": b"--" + BOUNDARY + b"\r\n" + b"X-%d: y\r\n" * 200_000,
    "a header without end": b"--" + BOUNDARY + b"\r\nX: " + b"y" * (MOST_BESIDE_FILE + 1),
    "a header name without end": b"--" + BOUNDARY + b"\r\n" + b"y" * (MOST_BESIDE_FILE + 1),
    "what follows the end": form(part(*PURPOSE)) + b"\r\n" * MOST_BESIDE_FILE,
    "what goes before the beginning": b"\r\n" * MOST_BESIDE_FILE,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_form_is_refused_before_it_takes_memory(name: str) -> None:
    hostile = HOSTILE[name]
    read_form = Form(BOUNDARY)
    tracemalloc.start()
    try:
        with pytest.raises(BadRequest):
            feed_all(read_form, hostile)
        assert tracemalloc.get_traced_memory()[1] < 2 * MOST_BESIDE_FILE
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("content_type", "boundary"),
    [
        ("multipart/form-data; boundary=abc", b"abc"),
        ('multipart/form-data; charset=utf-8; boundary="a b:c"', b"a b:c"),
        ("Multipart/Form-Data;Boundary=abc", b"abc"),
        ("multipart/form-data; boundary=" + "-" * 200, b"-" * 200),
    ],
)
def test_the_boundary_is_read_from_the_content_type(content_type: str, boundary: bytes) -> None:
    assert boundary_of(content_type) == boundary


@pytest.mark.parametrize("content_type", ["", "application/json", "multipart/mixed; boundary=abc", "form-data"])
def test_what_is_not_a_form_is_an_unsupported_type(content_type: str) -> None:
    with pytest.raises(UnsupportedMediaType):
        boundary_of(content_type)


@pytest.mark.parametrize("rest", ["", ";", "; boundary=", '; boundary=""', "; boundary=" + "x" * 201, "; boundary=界"])
def test_a_missing_or_odd_boundary_is_refused(rest: str) -> None:
    with pytest.raises(BadRequest):
        boundary_of("multipart/form-data" + rest)

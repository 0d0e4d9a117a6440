"""Names of files, as all kinds of clients send them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight.files.name import LONGEST, clean, read_parameters

SENT = {
    b'form-data; name="file"; filename="upload"': "upload",
    b'form-data; name="file"; filename="my file; final.jsonl"': "my file; final.jsonl",
    b"form-data; name=file; filename=plain.jsonl": "plain.jsonl",
    b'form-data; name="file"; filename="say \\"hi\\".jsonl"': 'say "hi".jsonl',
    b'form-data; name="file"; filename="C:\\Users\\me\\in.jsonl"': "in.jsonl",
    b'form-data; name="file"; filename="../../etc/passwd"': "passwd",
    b'form-data; name="file"; filename=""': "upload",
    b'form-data; name="file"': "upload",
    b'form-data; name="file"; filename=".."': "upload",
    b'form-data; name="file"; filename="a/"': "upload",
    'form-data; name="file"; filename="問題.jsonl"'.encode(): "問題.jsonl",
    'form-data; name="file"; filename="é.jsonl"'.encode("latin-1"): "é.jsonl",
    b"form-data; name=\"file\"; filename*=UTF-8''%E5%95%8F%E9%A1%8C.jsonl": "問題.jsonl",
    b'form-data; name="file"; filename="_.jsonl"; filename*=utf-8\'en\'%C3%A9.jsonl': "é.jsonl",
    b"form-data; name=\"file\"; filename*=ISO-8859-1''%E9.jsonl": "é.jsonl",
    b"form-data; name=\"file\"; filename*=UTF-8''..%2F..%2Fx": "x",
    b'form-data; name="file"; filename*0*=UTF-8\'\'%C3%A9; filename*1="-part.jsonl"': "é-part.jsonl",
    b'form-data; name="file"; filename*1=b.jsonl; filename*0=a': "ab.jsonl",
    b'FORM-DATA; NAME="file"; FileName="a.jsonl"': "a.jsonl",
}


@pytest.mark.parametrize("header", SENT)
def test_a_name_is_read_whatever_notation_it_comes_in(header: bytes) -> None:
    parameters = read_parameters(header)

    assert parameters["name"] == "file"
    assert clean(parameters.get("filename", "")) == SENT[header]


def test_control_characters_and_what_turns_text_around_are_taken_out() -> None:
    assert clean("a\0b\r\nc\x7f\x85\u2028\u202elnosj.exe") == "abclnosj.exe"


def test_a_long_name_is_cut_but_keeps_its_ending() -> None:
    assert clean("a" * 300 + ".jsonl") == "a" * (LONGEST - 6) + ".jsonl"
    assert clean("." + "a" * 300) == "." + "a" * (LONGEST - 1)
    assert clean("a." + "b" * 300) == "a." + "b" * (LONGEST - 2)


@given(st.text(max_size=600))
def test_whatever_the_name_what_is_kept_is_safe(name: str) -> None:
    kept = clean(name)

    assert 1 <= len(kept) <= LONGEST
    assert kept not in (".", "..")
    assert not set(kept) & set("/\\\0\r\n")
    kept.encode()


@given(st.binary(max_size=200))
def test_no_header_breaks_the_reading(header: bytes) -> None:
    for value in read_parameters(b"form-data; name=file" + header).values():
        clean(value)

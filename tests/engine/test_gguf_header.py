"""A GGUF header is read exactly, and a hostile one costs nothing."""

from __future__ import annotations

import os
import struct
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight.engine.errors import EngineError
from overnight.engine.gguf_header import MOST_ENTRIES, MOST_STRINGS, read_gguf_header
from tests.tiny_model import CHAT_TEMPLATE, write_tiny_model

STRING, ARRAY, U8, U32, U64 = 8, 9, 0, 4, 10


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def entry(key: bytes, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def header(*entries: bytes, count: int | None = None, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, 0, len(entries) if count is None else count) + b"".join(entries)


def test_a_written_model_is_read_back(tmp_path: Path) -> None:
    found = read_gguf_header(write_tiny_model(tmp_path / "m.gguf", name="Tiny", context_length=512))

    assert found["general.architecture"] == "llama"
    assert found["general.name"] == "Tiny"
    assert found["llama.context_length"] == 512
    assert found["tokenizer.chat_template"] == CHAT_TEMPLATE
    assert "tokenizer.ggml.tokens" not in found


def test_values_of_every_kind_are_read_and_lists_stepped_over(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(
        header(
            entry(b"small", 1, struct.pack("<b", -3)),
            entry(b"words", ARRAY, struct.pack("<IQ", STRING, 2) + text(b"one") + text(b"")),
            entry(b"numbers", ARRAY, struct.pack("<IQ", U64, 3) + bytes(24)),
            entry(b"half", 6, struct.pack("<f", 0.5)),
            entry(b"yes", 7, b"\x01"),
            entry(b"name", STRING, text("Ωmega".encode())),
        )
    )

    assert read_gguf_header(path) == {"small": -3, "half": 0.5, "yes": True, "name": "Ωmega"}


HUGE = 2**63 - 1
HOSTILE = {
    "empty": b"",
    "not a model": b"PK\x03\x04" + bytes(100),
    "only the first bytes": b"GGUF\x03\x00",
    "old version": header(version=1),
    "other byte order": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
    "entries without end": header(count=HUGE),
    "entries that are missing": header(count=MOST_ENTRIES),
    "endless key": header(struct.pack("<Q", HUGE), count=1),
    "endless string": header(entry(b"k", STRING, struct.pack("<Q", HUGE))),
    "endless list": header(entry(b"k", ARRAY, struct.pack("<IQ", U32, HUGE))),
    "endless list of bytes": header(entry(b"k", ARRAY, struct.pack("<IQ", U8, 2**64 - 1))),
    "endless list of strings": header(entry(b"k", ARRAY, struct.pack("<IQ", STRING, HUGE))),
    "many strings": header(entry(b"k", ARRAY, struct.pack("<IQ", STRING, MOST_STRINGS + 1))),
    "string beyond the end of its list": header(
        entry(b"k", ARRAY, struct.pack("<IQ", STRING, 2) + text(b"a") + struct.pack("<Q", HUGE))
    ),
    "list of lists": header(entry(b"k", ARRAY, struct.pack("<IQ", ARRAY, 1))),
    "unknown type": header(entry(b"k", 99, b"")),
    "value cut off": header(entry(b"k", U32, b"\x01")),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_header_is_refused_by_name_without_taking_memory(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "hostile.gguf"
    path.write_bytes(content)

    tracemalloc.start()
    try:
        with pytest.raises(EngineError, match=r"hostile\.gguf"):
            read_gguf_header(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 2 << 20


def test_a_huge_hollow_file_full_of_long_strings_is_refused_before_they_fill_the_memory(tmp_path: Path) -> None:
    """Holes cost no disk, so the size of a file is no bound on what its header may claim."""
    path = tmp_path / "hollow.gguf"
    with path.open("wb") as file:
        file.write(header(count=MOST_ENTRIES))
        for number in range(64):
            file.write(text(b"key%d" % number) + struct.pack("<IQ", STRING, 1 << 20))
            file.seek(1 << 20, 1)
        file.truncate(1 << 40)

    tracemalloc.start()
    try:
        with pytest.raises(EngineError, match="too much text"):
            read_gguf_header(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 32 << 20


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")

    with pytest.raises(EngineError, match="is not a file"):
        read_gguf_header(tmp_path / "pipe.gguf")


@given(st.data())
def test_whatever_is_changed_in_a_header_the_outcome_is_a_header_or_a_clear_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    whole = header(
        entry(b"general.architecture", STRING, text(b"llama")),
        entry(b"tokens", ARRAY, struct.pack("<IQ", STRING, 2) + text(b"a") + text(b"b")),
        entry(b"llama.context_length", U32, struct.pack("<I", 2048)),
    )
    at = data.draw(st.integers(0, len(whole)))
    changed = whole[:at] + data.draw(st.binary(max_size=12)) + whole[at + data.draw(st.integers(0, 12)) :]
    path = tmp_path_factory.getbasetemp() / "changed.gguf"
    path.write_bytes(changed)

    try:
        found = read_gguf_header(path)
    except EngineError as error:
        assert "changed.gguf" in str(error)  # noqa: PT017
    else:
        assert len(found) <= 3

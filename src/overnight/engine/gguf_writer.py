"""Writes GGUF files: a header of values, then tensors.

The format is described at https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

VERSION = 3
ALIGNMENT = 32
_FORMS = {"u32": (4, "<I"), "i32": (5, "<i"), "f32": (6, "<f"), "bool": (7, "<?")}
_STRING = 8
_ARRAY = 9
_TENSOR_TYPES = {np.dtype(np.float32): 0, np.dtype(np.float16): 1}


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of 32 or 16-bit floats, made when it is written: weights are large."""

    name: str
    shape: tuple[int, ...]
    kind: type[np.float32 | np.float16]
    make: Callable[[], NDArray[Any]]

    @property
    def size(self) -> int:
        """Bytes."""
        return int(np.prod(self.shape)) * np.dtype(self.kind).itemsize


def write_gguf(path: Path, values: Mapping[str, tuple[str, Any]], tensors: Sequence[Tensor]) -> None:
    """Write a file that appears whole or not at all.

    A value is its form and itself: `("u32", 5)`, `("str", "bert")`, or a list as `("str*", [...])`, `("i32*", [...])`.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("wb") as file:
            _write(file, values, tensors)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _write(file: BinaryIO, values: Mapping[str, tuple[str, Any]], tensors: Sequence[Tensor]) -> None:
    file.write(b"GGUF" + struct.pack("<IQQ", VERSION, len(tensors), len(values)))
    for key, (form, value) in values.items():
        file.write(_text(key) + _value(form, value))
    offset = 0
    for tensor in tensors:
        # The format counts dimensions from the one that lies closest.
        shape = struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *reversed(tensor.shape))
        file.write(_text(tensor.name) + shape + struct.pack("<IQ", _TENSOR_TYPES[np.dtype(tensor.kind)], offset))
        offset += _aligned(tensor.size)
    _pad(file)
    for tensor in tensors:
        file.write(np.ascontiguousarray(tensor.make(), dtype=tensor.kind).tobytes())
        _pad(file)


def _value(form: str, value: Any) -> bytes:
    if form == "str":
        return struct.pack("<I", _STRING) + _text(value)
    if not form.endswith("*"):
        code, pattern = _FORMS[form]
        return struct.pack("<I", code) + struct.pack(pattern, value)
    inner = form[:-1]
    if inner == "str":
        return struct.pack("<IIQ", _ARRAY, _STRING, len(value)) + b"".join(map(_text, value))
    code, pattern = _FORMS[inner]
    return struct.pack("<IIQ", _ARRAY, code, len(value)) + _packed(pattern, value)


def _packed(pattern: str, values: Iterable[Any]) -> bytes:
    return b"".join(struct.pack(pattern, value) for value in values)


def _text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _pad(file: BinaryIO) -> None:
    at = file.tell()
    file.write(bytes(_aligned(at) - at))

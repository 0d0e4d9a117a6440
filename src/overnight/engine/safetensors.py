"""Reads tensors from a file in the safetensors format, one at a time.

The format is described at https://github.com/huggingface/safetensors: the length of a JSON header, the header, bytes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overnight.engine.errors import EngineError

LARGEST_HEADER = 64 << 20
_KINDS: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}


class Safetensors:
    """The tensors of a file by name; only those of floats are there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            with path.open("rb") as file:
                length = int.from_bytes(file.read(8), "little")
                if not 0 < length <= min(LARGEST_HEADER, path.stat().st_size - 8):
                    raise ValueError
                header = json.loads(file.read(length))
            self._start = 8 + length
            self._entries: dict[str, tuple[str, tuple[int, ...], int, int]] = {
                name: (entry["dtype"], tuple(map(int, entry["shape"])), *map(int, entry["data_offsets"]))
                for name, entry in header.items()
                if name != "__metadata__" and entry["dtype"] in _KINDS
            }
            if any(not self._fits(*entry) for entry in self._entries.values()):
                raise ValueError
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise EngineError(f"{path} is not a usable safetensors file.") from error

    def __iter__(self) -> Any:
        return iter(self._entries)

    def shape(self, name: str) -> tuple[int, ...]:
        """The lengths of its sides."""
        return self._entries[name][1]

    def read(self, name: str) -> NDArray[Any]:
        """The tensor in 32 or 16-bit floats."""
        kind, shape, start, _ = self._entries[name]
        count = int(np.prod(shape))
        with self._path.open("rb") as file:
            raw: NDArray[Any] = np.fromfile(file, _KINDS[kind], count, offset=self._start + start).reshape(shape)
        if kind != "BF16":
            return raw
        # These are the upper halves of 32-bit floats.
        halves: NDArray[Any] = raw.astype(np.uint32) << 16
        return halves.view(np.float32)

    def _fits(self, kind: str, shape: tuple[int, ...], start: int, end: int) -> bool:
        size = _KINDS[kind].itemsize
        for side in shape:
            size *= side
        return 0 <= start <= end <= self._path.stat().st_size - self._start and end - start == size

"""Compression of what is stored: small zstd frames that together are one valid stream."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_LEVEL = 1
"""Level 3 saves 8 % of the bytes and costs 1.4 µs a result more."""

_compressor = zstd.ZstdCompressor(level=_LEVEL)


def compress(data: bytes) -> bytes:
    """One frame."""
    return _compressor.compress(data, zstd.ZstdCompressor.FLUSH_FRAME)


def decompress(data: bytes) -> bytes:
    """All frames of `data`, one after the other."""
    return zstd.decompress(data)

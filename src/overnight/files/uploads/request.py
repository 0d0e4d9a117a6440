"""The bodies of the calls that create and complete an upload, strictly read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from overnight.domain import ids
from overnight.domain.errors import EmptyFile, InvalidParameter, MissingParameter
from overnight.domain.fields import kept_seconds, read_object, text
from overnight.domain.limits import MOST_PARTS, Limits
from overnight.files import name
from overnight.files.arrival import too_large

LONGEST_CREATE = 64 * 1024
"""Bytes of a body that creates an upload."""

LONGEST_COMPLETE = 1024 * 1024
"""Bytes of a body that completes one: it names up to MOST_PARTS parts, of 40 bytes each."""

LONGEST_TEXT = 1024

LARGEST = 2**63 - 1
_MD5 = re.compile(r"[0-9a-fA-F]{32}")


@dataclass(frozen=True, slots=True)
class NewUpload:
    """What a create call asks for."""

    bytes: int
    filename: str
    file_lives: timedelta | None
    """How long the file is to live once it is there; None: as long as files do."""


@dataclass(frozen=True, slots=True)
class Completion:
    """What a complete call asks for."""

    parts: tuple[UUID | None, ...]
    """In the order in which they make up the file; None for what cannot be the id of a part."""
    shown: tuple[str, ...]
    """The same as they were written."""
    md5: str | None
    """Of the whole file, in lower-case hexadecimal digits."""


def read_create(body: bytes, limits: Limits) -> NewUpload:
    """Read the body of a create call.

    Raises InvalidJSON, UnknownParameter, MissingParameter, InvalidParameter, EmptyFile and TooLarge.
    """
    given = read_object(body, ("bytes", "filename", "mime_type", "purpose", "expires_after"))
    seconds = kept_seconds(given, "expires_after")
    filename = _short_text(given, "filename")
    # Clients must name a type; whatever it is, the file is read as lines of JSON.
    _short_text(given, "mime_type")
    if text(given, "purpose") != "batch":
        raise InvalidParameter("purpose must be 'batch'.", param="purpose")
    return NewUpload(
        bytes=_size(given, limits),
        filename=name.clean(filename),
        file_lives=None if seconds is None else timedelta(seconds=seconds),
    )


def read_complete(body: bytes) -> Completion:
    """Read the body of a complete call.

    Raises InvalidJSON, UnknownParameter, MissingParameter and InvalidParameter, also where a part is named twice.
    """
    given = read_object(body, ("part_ids", "md5"))
    if "part_ids" not in given:
        raise MissingParameter("The field 'part_ids' is missing.", param="part_ids")
    shown = given["part_ids"]
    is_list = type(shown) is list and all(type(part_id) is str for part_id in shown)
    if not is_list or not 1 <= len(shown) <= MOST_PARTS:
        raise InvalidParameter(f"part_ids must be an array of 1 to {MOST_PARTS:,} ids of parts.", param="part_ids")
    if len(set(shown)) < len(shown):
        raise InvalidParameter("part_ids may name each part once.", param="part_ids")
    md5 = given.get("md5")
    if md5 is not None and (type(md5) is not str or not _MD5.fullmatch(md5)):
        raise InvalidParameter("md5 must be a string of 32 hexadecimal digits.", param="md5")
    return Completion(
        parts=tuple(ids.read(ids.PART, part_id) for part_id in shown),
        shown=tuple(shown),
        md5=None if md5 is None else md5.lower(),
    )


def _short_text(given: Mapping[str, Any], field: str) -> str:
    value = text(given, field)
    if len(value) > LONGEST_TEXT:
        raise InvalidParameter(f"{field} may be at most {LONGEST_TEXT:,} characters long.", param=field)
    return value


def _size(given: Mapping[str, Any], limits: Limits) -> int:
    if "bytes" not in given:
        raise MissingParameter("The field 'bytes' is missing.", param="bytes")
    size = given["bytes"]
    if type(size) is not int or not 0 <= size <= LARGEST:
        raise InvalidParameter("bytes must be a whole number: the size of the whole file.", param="bytes")
    if size == 0:
        raise EmptyFile("The file is empty. Upload one with at least one line.", param="bytes")
    if size > limits.file_bytes:
        raise too_large(size, limits, "bytes")
    return size

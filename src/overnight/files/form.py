"""The multipart form of an upload, read as it comes: the file's bytes go through, the other fields are kept small."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError

from overnight.domain.errors import BadRequest, InvalidParameter, MissingParameter, UnsupportedMediaType
from overnight.domain.fields import KEPT_SECONDS
from overnight.domain.limits import MIB
from overnight.files import name

LONGEST_BOUNDARY = 200
"""RFC 2046 allows 70 characters; some clients send more."""

LONGEST_FIELD = 1024
LONGEST_HEADERS = 64 * 1024
MOST_HEADERS = 32
"""Of one part."""

MOST_BESIDE_FILE = MIB
"""Everything of the form that is not the file itself: fields, headers, boundaries, what follows the end."""

KNOWN = ("purpose", "expires_after[anchor]", "expires_after[seconds]")


def boundary_of(content_type: str) -> bytes:
    """Read the boundary out of a `Content-Type`. Raises UnsupportedMediaType and BadRequest."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind != "multipart/form-data":
        raise UnsupportedMediaType("Upload files as multipart/form-data, with the fields `file` and `purpose`.")
    try:
        boundary = name.read_parameters(content_type.encode("latin-1")).get("boundary", "").encode("latin-1")
    except UnicodeEncodeError:
        boundary = b""
    if not 1 <= len(boundary) <= LONGEST_BOUNDARY:
        raise BadRequest(
            f"The Content-Type must name a boundary of 1 to {LONGEST_BOUNDARY} characters; HTTP clients make one "
            "where they build the form themselves."
        )
    return boundary


class Form:
    """Feed it the body: it hands back the file's bytes and keeps what it knows of the rest.

    `file_field` is the field that holds the file; of the others those in `known` are kept.
    """

    def __init__(self, boundary: bytes, file_field: str = "file", known: Collection[str] = KNOWN) -> None:
        self.filename: str | None = None
        """The cleaned name of the file, from when its part begins."""
        self.fields: dict[str, str] = {}
        self.is_complete = False
        self._file_field = file_field
        self._known = known
        self._beside_file = 0
        self._found: list[bytes] = []
        self._headers: dict[bytes, bytes] = {}
        self._header = bytearray()
        self._value = bytearray()
        self._headers_size = 0
        self._field: str | None = None
        self._content = bytearray()
        self._in_file = False
        self._delimiter = b"\r\n--" + boundary
        # The first boundary may come at once, or on a line after some text.
        self._before_first: bytes | None = b"\r\n"
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin_part,
                "on_header_field": self._add_to_header,
                "on_header_value": self._add_to_value,
                "on_header_end": self._end_header,
                "on_headers_finished": self._end_headers,
                "on_part_data": self._add_content,
                "on_part_end": self._end_part,
                "on_end": self._end,
            },
            max_header_count=MOST_HEADERS,
            max_header_size=LONGEST_HEADERS,
        )

    def feed(self, data: bytes) -> list[bytes]:
        """Take a piece of the body and return the pieces of the file that it holds. Raises BadRequest."""
        self._found = []
        try:
            self._parser.write(self._from_first_boundary(data))
        except FormParserError as e:
            raise BadRequest("The form is not well-formed multipart/form-data.") from e
        self._beside_file += len(data) - sum(map(len, self._found))
        if self._beside_file > MOST_BESIDE_FILE:
            raise BadRequest(
                f"The form holds more than {MOST_BESIDE_FILE:,} bytes beside the file, which goes in the field "
                f"`{self._file_field}`."
            )
        return self._found

    def _from_first_boundary(self, data: bytes) -> bytes:
        """What is not before the first boundary: RFC 2046 (5.1.1) has anything there left out."""
        if self._before_first is None:
            return data
        before = self._before_first + data
        at = before.find(self._delimiter)
        if at < 0:
            self._before_first = before[-len(self._delimiter) + 1 :]
            return b""
        self._before_first = None
        return before[at + 2 :]

    def end(self) -> None:
        """Check that the whole form came, with a file and, where one is known, a purpose. Raises BadRequest."""
        if self._before_first is not None:
            raise BadRequest("The boundary that the Content-Type names is nowhere in the body.")
        if not self.is_complete:
            raise BadRequest("The form ends before its closing boundary: the upload was cut. Send it again.")
        if self.filename is None:
            raise MissingParameter(f"The form has no field `{self._file_field}`.", param=self._file_field)
        if "purpose" in self._known and "purpose" not in self.fields:
            raise MissingParameter("The form has no field `purpose`; send `batch`.", param="purpose")

    def life(self) -> timedelta | None:
        """How long the file is to live as the form says; None where it says nothing. Raises BadRequest."""
        anchor = self.fields.get("expires_after[anchor]")
        seconds = self.fields.get("expires_after[seconds]")
        if anchor is None and seconds is None:
            return None
        for part, given in (("anchor", anchor), ("seconds", seconds)):
            if given is None:
                raise MissingParameter(
                    f"`expires_after` lacks its `{part}`; it needs an anchor and seconds.",
                    param=f"expires_after[{part}]",
                )
        assert seconds is not None
        return timedelta(seconds=int(seconds))

    def _begin_part(self) -> None:
        self._headers = {}
        self._headers_size = 0
        self._header.clear()
        self._value.clear()

    def _add_to_header(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]
        self._count_headers(end - start)

    def _add_to_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]
        self._count_headers(end - start)

    def _count_headers(self, more: int) -> None:
        self._headers_size += more
        if self._headers_size > LONGEST_HEADERS:
            raise BadRequest(f"A part of the form has more than {LONGEST_HEADERS:,} bytes of headers.")

    def _end_header(self) -> None:
        self._headers.setdefault(bytes(self._header).lower(), bytes(self._value))
        self._header.clear()
        self._value.clear()

    def _end_headers(self) -> None:
        disposition = name.read_parameters(self._headers.get(b"content-disposition", b""))
        field = disposition.get("name")
        self._in_file = field == self._file_field
        self._field = field if field in self._known else None
        self._content.clear()
        if self._in_file:
            self._begin_file(disposition.get("filename", ""))

    def _begin_file(self, filename: str) -> None:
        if self.filename is not None:
            raise InvalidParameter(
                f"The form has more than one field `{self._file_field}`; upload one file at a time.",
                param=self._file_field,
            )
        encoding = self._headers.get(b"content-transfer-encoding", b"binary").strip().lower()
        if encoding not in (b"binary", b"8bit", b"7bit"):
            raise InvalidParameter(
                "The file must come as it is, without a Content-Transfer-Encoding.", param=self._file_field
            )
        self.filename = name.clean(filename)

    def _add_content(self, data: bytes, start: int, end: int) -> None:
        if self._in_file:
            self._found.append(data[start:end])
        elif self._field is not None:
            self._content += data[start:end]
            if len(self._content) > LONGEST_FIELD:
                raise InvalidParameter(f"`{self._field}` is longer than any value it may have.", param=self._field)

    def _end_part(self) -> None:
        field, self._field = self._field, None
        self._in_file = False
        if field is None:
            return
        if field in self.fields:
            raise InvalidParameter(f"The form has more than one field `{field}`.", param=field)
        self.fields[field] = _checked(field, self._content.decode("utf-8", "replace"))

    def _end(self) -> None:
        self.is_complete = True


def _checked(field: str, value: str) -> str:
    match field:
        case "purpose":
            if value != "batch":
                raise InvalidParameter("`purpose` must be `batch`.", param=field)
        case "expires_after[anchor]":
            if value != "created_at":
                raise InvalidParameter("The anchor must be `created_at`.", param=field)
        case _:
            is_number = value.isascii() and value.isdecimal() and len(value) <= 9
            if not is_number or int(value) not in KEPT_SECONDS:
                raise InvalidParameter(
                    f"The seconds must be a whole number from {KEPT_SECONDS[0]:,} to {KEPT_SECONDS[-1]:,}.", param=field
                )
    return value

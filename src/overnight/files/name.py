"""The name of a file, out of the headers of whatever client sent it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from urllib.parse import unquote_to_bytes

LONGEST = 255
"""Characters of a stored name: what most file systems can hold when it is saved again."""

UNNAMED = "upload"

_PARAMETER = re.compile(r";\s*([^\s=;\"]+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^;]*))", re.DOTALL)
_SECTION = re.compile(r"([^*]+)\*(\d{1,3})(\*?)")
_UNWANTED = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Unicode's categories of control characters, lone surrogates and separators of lines."""
_BIDI_CONTROLS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""They can make a name look like another one."""


def read_parameters(header: bytes) -> dict[str, str]:
    """Read the parameters of a header like `form-data; name="file"; filename="a.jsonl"`.

    Names are in lower case. The extended notation of RFC 5987 (`filename*=UTF-8''…`) and its sections as in
    RFC 2231 (`filename*0*=`) are decoded and win over the plain one; bytes that are not UTF-8 are taken as Latin-1.
    """
    plain: dict[str, str] = {}
    extended: dict[str, list[tuple[int, str, bool]]] = {}
    for name, quoted, token in _PARAMETER.findall(_decode(header)):
        value = re.sub(r'\\(["\\])', r"\1", quoted) if quoted else token.strip()
        section = _SECTION.fullmatch(name)
        if section:
            extended.setdefault(section[1].lower(), []).append((int(section[2]), value, bool(section[3])))
        elif name.endswith("*"):
            extended[name[:-1].lower()] = [(0, value, True)]
        else:
            plain.setdefault(name.lower(), value)
    return plain | {name: _join(sections) for name, sections in extended.items()}


def _decode(header: bytes) -> str:
    try:
        return header.decode()
    except UnicodeDecodeError:
        return header.decode("latin-1")


def _join(sections: Iterable[tuple[int, str, bool]]) -> str:
    charset = "utf-8"
    whole = b""
    for number, (_, value, is_encoded) in enumerate(sorted(sections)):
        if is_encoded and number == 0 and value.count("'") >= 2:
            charset, _, value = value.split("'", 2)
        whole += unquote_to_bytes(value) if is_encoded else value.encode()
    if charset.lower() in ("iso-8859-1", "latin-1"):
        return whole.decode("latin-1")
    return whole.decode("utf-8", "replace")


def clean(name: str) -> str:
    """Make a name safe to show and to save: no folders, no control characters, at most 255 characters.

    A name that has nothing left is `upload`. An ending is kept where the name is cut.
    """
    base = re.split(r"[/\\]", name)[-1]
    allowed = [c for c in base if unicodedata.category(c) not in _UNWANTED and c not in _BIDI_CONTROLS]
    kept = "".join(allowed).strip()
    if len(kept) > LONGEST:
        stem, dot, ending = kept.rpartition(".")
        ending = dot + ending if stem and len(ending) <= 16 else ""
        kept = kept[: LONGEST - len(ending)] + ending
    return UNNAMED if kept in ("", ".", "..") else kept

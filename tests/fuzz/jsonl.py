"""Makes input files: of lines that are right, at or beside a limit, or strange and legal, and then mangles them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

LONGEST_LINE = 2_000
"""Bytes of a line in these tests."""

CHAT, COMPLETIONS, EMBEDDINGS = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
URLS = (CHAT, COMPLETIONS, EMBEDDINGS)

TEXTS = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    ("\u2028\u2029\x85", "\\u0041", '"', "\x00\x1f", "é" * 9, "😀", "\ufeff", "null", "e\u0301")
)
_IDS = (
    st.integers(0, 10**6).map(str) | TEXTS.filter(bool) | st.sampled_from(("é" * 512, "é" * 513, "😀" * 512, "x" * 513))
)
_MODELS = st.sampled_from(("m", "m", "m", "m", "m", "m", "nick", "other", "gone", "auto", "auto-x", ""))
_NUMBERS = st.sampled_from((0, 1, -1, 2, 0.5, 2.0, 5.0, 10**40, -(2**63), 1e-400, 1e308, True, None, "1"))
_PAIRS = st.sampled_from(
    (
        {},
        {"k" * 64: "v" * 512},
        {"k" * 65: "v"},
        {"k": "v" * 513},
        {"k": 1},
        {str(i): "" for i in range(16)},
        {str(i): "" for i in range(17)},
    )
)
_DEPTHS = st.sampled_from((1, 60, 124, 125, 126, 127, 200, 900))
_EXTRAS: dict[str, st.SearchStrategy[Any]] = {
    "temperature": _NUMBERS,
    "top_p": _NUMBERS,
    "seed": _NUMBERS,
    "max_tokens": _NUMBERS,
    "n": _NUMBERS,
    "stream": st.sampled_from((None, False, True, 0)),
    "stop": st.none() | TEXTS | st.lists(TEXTS, max_size=5),
    "user": TEXTS,
    "metadata": _PAIRS,
    "logit_bias": st.dictionaries(st.sampled_from(("1", "-1", "x")), _NUMBERS, max_size=2),
    "chat_template_kwargs": _DEPTHS.map(lambda depth: {"deep": _nested(depth)}),
    "unknown": st.none(),
}
_GOOD: dict[str, st.SearchStrategy[Any]] = {
    "temperature": st.sampled_from((0, 2, 0.5, 1e-400, None)),
    "seed": st.sampled_from((0, 10**40, -(2**63), 5.0)),
    "max_tokens": st.sampled_from((1, 10**12)),
    "stream": st.sampled_from((None, False)),
    "user": TEXTS,
    "truncate_prompt_tokens": st.none(),
}


def _nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


def _input(url: str, text: str) -> dict[str, Any]:
    if url == CHAT:
        return {"messages": [{"role": "user", "content": text}]}
    return {"prompt" if url == COMPLETIONS else "input": text or "x"}


@st.composite
def requests(draw: st.DrawFn, urls: st.SearchStrategy[str]) -> dict[str, Any]:
    """A request that may be wrong in some field, or at a limit of it."""
    url = draw(urls)
    body = {"model": draw(_MODELS), **_input(url, draw(TEXTS))}
    for name in draw(st.lists(st.sampled_from(sorted(_EXTRAS)), max_size=2)):
        body[name] = draw(_EXTRAS[name])
    return {"custom_id": draw(_IDS), "method": "POST", "url": url, "body": body}


@st.composite
def good_requests(draw: st.DrawFn, urls: st.SearchStrategy[str]) -> list[dict[str, Any]]:
    """Some requests that are right, of one model, each with another id."""
    url = draw(urls)
    found = []
    for number in range(draw(st.integers(1, 5))):
        body = {"model": draw(st.sampled_from(("m", "nick"))), **_input(url, draw(TEXTS))}
        for name in draw(st.lists(st.sampled_from(sorted(_GOOD)), max_size=2)):
            # The table of embeddings has few of these fields.
            if url != EMBEDDINGS or name in ("stream", "user", "truncate_prompt_tokens"):
                body[name] = draw(_GOOD[name])
        custom_id = draw(TEXTS) + str(number)
        found.append({"custom_id": custom_id, "method": "POST", "url": url, "body": body})
    return found


@st.composite
def written(draw: st.DrawFn, request: dict[str, Any]) -> bytes:
    """A request as some writer of JSON writes it; now and then exactly as long as a line may be, or one more."""
    separators = draw(st.sampled_from(((",", ":"), (", ", ": "), (" ,\t", " : "))))
    text = json.dumps(request, ensure_ascii=draw(st.booleans()), separators=separators)
    if draw(st.integers(0, 4)) == 0:
        text = text.replace('"POST"', '"\\u0050OST"').replace("/v1/", "\\/v1\\/")
    line = text.encode()
    over = draw(st.sampled_from((None,) * 20 + (-1, 0, 1)))
    return line if over is None else _padded(line, LONGEST_LINE + over)


def _padded(line: bytes, size: int) -> bytes:
    return line[:-1] + b" " * (size - len(line)) + line[-1:]


PIECES = (
    b"\xff", b"\x00", b"{", b"}", b"[", b"]", b'"', b"\\", b"\n", b"\r", b"\r\n", b"\xef\xbb\xbf", b"NaN", b"-", b"0",
    b"1e999", b"-Infinity", b"\xed\xa0\x80", b"\\ud800", b"\\ud83d\\ude00", b',"a":1', b'"method":"POST",', b"\x0b",
    b"\xe2\x80\xa8", b"null", b"9" * 400, b"1" + b"0" * 310 + b".5", b"\xc0\xaf", b"//", b"'", b",", b":", b" " * 2_001,
)  # fmt: skip
Mangle = Callable[[bytes], bytes]


@st.composite
def mangles(draw: st.DrawFn) -> Mangle:
    """One thing done to some bytes: cut, inserted, doubled, or lines swapped."""
    at, other = draw(st.integers(0, 10**6)), draw(st.integers(0, 30))
    piece = draw(st.sampled_from(PIECES))
    kind = draw(st.sampled_from(("cut", "insert", "double", "swap", "double line", "end")))

    def mangle(data: bytes) -> bytes:
        start = at % (len(data) + 1)
        stop = start + other
        lines = data.split(b"\n")
        line = at % len(lines)
        match kind:
            case "cut":
                return data[:start] + data[stop:]
            case "insert":
                return data[:start] + piece + data[start:]
            case "double":
                return data[:stop] + data[start:]
            case "swap":
                swapped = (line + other) % len(lines)
                lines[line], lines[swapped] = lines[swapped], lines[line]
                return b"\n".join(lines)
            case "double line":
                return b"\n".join((*lines, lines[line]))
        return data[:start]

    return mangle


@st.composite
def _some(draw: st.DrawFn, urls: st.SearchStrategy[str]) -> tuple[list[dict[str, Any]], list[Mangle]]:
    """Requests of a file or call, and what is done to it afterwards; half of the time both leave it good."""
    if draw(st.booleans()):
        return draw(good_requests(urls)), []
    found = draw(st.one_of(good_requests(urls), st.lists(requests(urls), max_size=6)))
    return found, draw(st.lists(mangles(), max_size=2))


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """The bytes of an input file."""
    of_one = st.just(draw(st.sampled_from(URLS)))
    urls = draw(st.sampled_from((of_one, of_one, of_one, st.sampled_from((*URLS, "/v1/x")))))
    found, done = draw(_some(urls))
    ends = st.sampled_from((b"\n", b"\n", b"\r\n", b"\n\n", b"\n \t\n", b"\r\n\r\n"))
    data = b"".join(draw(written(request)) + draw(ends) for request in found)
    if draw(st.booleans()):
        data = data.rstrip(b"\r\n")
    if draw(st.integers(0, 4)) == 0:
        data = b"\xef\xbb\xbf" + data
    for mangle in done:
        data = mangle(data)
    return data


@st.composite
def direct_bodies(draw: st.DrawFn) -> bytes:
    """The body of a create call with requests, some of which leave out what may be left out."""
    urls = draw(st.sampled_from((st.just(CHAT), st.just(CHAT), st.just(EMBEDDINGS), st.sampled_from(URLS))))
    found, done = draw(_some(urls))
    texts = []
    for request in found:
        left_out = draw(st.sampled_from(((), (), ("method",), ("url",), ("method", "url"))))
        kept = {name: value for name, value in request.items() if name not in left_out}
        separators = draw(st.sampled_from(((",", ":"), (" ,\r\n", "\n: "))))
        texts.append(json.dumps(kept, ensure_ascii=draw(st.booleans()), separators=separators).encode())
    body = b'{"requests":[' + b",".join(texts) + b"]}"
    for mangle in done:
        body = mangle(body)
    return body


@st.composite
def metadata(draw: st.DrawFn) -> Any:
    """What a create call may give as `metadata`: at a limit, one over it, or of a wrong kind."""
    key, value = draw(st.integers(63, 65)), draw(st.integers(511, 513))
    pairs: dict[str, Any] = {
        ("é" * key)[len(str(i)) :] + str(i): "😀" * value for i in range(draw(st.integers(15, 17)))
    }
    odd: Any = draw(st.sampled_from((None, 1, "\0", "\u2028", {}, "text")))
    return draw(st.sampled_from((pairs, {"k": odd}, {"k" * key: "v" * value}, odd, [pairs])))


def _line(custom_id: str = "a", more: bytes = b"", text: str = '"x"') -> bytes:
    """A good line of chat; `text` is the JSON of its message, `more` goes behind its body's fields."""
    body = b'{"model":"m","messages":[{"role":"user","content":%b}]%b}' % (text.encode(), more)
    head = json.dumps({"custom_id": custom_id, "method": "POST", "url": CHAT}, ensure_ascii=False).encode()
    return head[:-1] + b',"body":%b}' % body


def _deep(levels: int) -> bytes:
    return b',"chat_template_kwargs":{"d":%b%b}' % (b"[" * levels, b"]" * levels)


EDGES = (
    b"",
    b"\n \n",
    b"\xef\xbb\xbf" + _line() + b"\r\n\r\n" + _line("b"),
    _line() + b"\n\xef\xbb\xbf" + _line("b"),
    _line("é" * 512) + b"\n" + _line("😀" * 513) + b"\n" + _line(""),
    # The line's object, its body and the arguments of the template are three levels.
    _line("a", _deep(125)) + b"\n" + _line("b", _deep(126)) + b"\n" + _line("c", _deep(600)),
    _padded(_line("a"), LONGEST_LINE) + b"\r\n" + _line("b") + b"\n" + _padded(_line("c"), LONGEST_LINE + 1),
    b" " * LONGEST_LINE + b"\n" + _line() + b"\n" + b" " * (LONGEST_LINE + 1),
    _line("a", b',"seed":1' + b"0" * 400) + b"\n" + _line("b", b',"temperature":1e-999'),
    _line("a", b',"temperature":1e999')
    + b"\n"
    + _line("b", b',"top_p":NaN')
    + b"\n"
    + _line("c", b',"n":1' + b"0" * 310 + b".5"),
    _line("a", b',"n":1,"n":1') + b"\n" + _line("b", b',"n":1,"\\u006e":1') + b"\n" + _line("a"),
    _line("e\u0301") + b"\n" + _line("\u00e9") + b"\n" + _line("e\u0301"),
    _line("a", text='"\\ud800"') + b"\n" + _line("b", text='"\\ud83d\\ude00"') + b"\n" + _line("c")[:-9] + b'\xff"}]}}',
    _line() + b"\x0b\n\x0b\n\x00\n" + _line("b"),
    _line("a").replace(b'"m"', b'"nick"') + b"\n" + _line("b") + b"\n" + _line("c").replace(b'"m"', b'"other"'),
    b"\n".join(_line(str(i)) for i in range(9)) + b"\nnull\n",
    b"\n".join(_line(str(i)) for i in range(9)) + b"\n" + _line("x").replace(b'"m"', b'"gone"'),
)
"""Files at the limits and beside them; each is tried in every run."""

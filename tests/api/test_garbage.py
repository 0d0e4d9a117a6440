"""Whatever is sent, the answer is one that the API declares, and never an inner fault."""

from __future__ import annotations

import json
import random
from typing import Any
from urllib.parse import quote

import httpx

from overnight.domain import errors
from overnight.domain.errors import Refusal
from tests.api.conftest import ServedApp, request
from tests.api.test_edge import error_of

ROUNDS = 400


def _codes(kind: type[Refusal]) -> set[tuple[int, str]]:
    return {(kind.status, kind.code)}.union(*[_codes(below) for below in kind.__subclasses__()])


DECLARED = _codes(errors.BadRequest) | {
    (kind.status, kind.code)
    for kind in (
        errors.NotFound, errors.FileNotFound, errors.BatchNotFound, errors.ModelNotFound, errors.UploadNotFound,
        errors.MethodNotAllowed, errors.TooLarge, errors.UnsupportedMediaType, errors.RangeNotSatisfiable,
    )
}  # fmt: skip
"""What a caller can bring about by what is sent. No fault of the server is among them."""

TEXTS = (
    "", "0", "-1", "1e9", "batch", "validating", "24h", "/v1/chat/completions", "null", "\0", "\ud7ff", "☂", "é" * 300,
    "x" * 5000, "%", "..", "'; DROP TABLE batch; --", "file-" + "0" * 32, "batch_" + "f" * 32, "9" * 400,
)  # fmt: skip


class Garbage:
    """Calls made of pieces that the API knows and of pieces that it doesn't, the same for the same seed."""

    def __init__(self, seed: int, url: str, ids: list[str]) -> None:
        self._url = url
        self._random = random.Random(seed)
        self._texts = (*TEXTS, *ids)

    def text(self) -> str:
        return self._random.choice(self._texts)

    def path(self) -> str:
        pick = self._random.choice
        name = quote(self.text()[:200], safe="", errors="replace")
        return (
            "/v1/"
            + pick(("files", "batches", "uploads", "models", "pool/status", name))
            + pick(
                (
                    "",
                    "/",
                    f"/{name}",
                    f"/{name}/content",
                    f"/{name}/cancel",
                    f"/{name}/{pick(('parts', 'complete'))}",
                    "/a/b/c",
                )
            )
        )

    def value(self, depth: int = 0) -> Any:
        pick = self._random.choice
        kind = pick("snnbNld" if depth < 3 else "snnbN")
        match kind:
            case "s":
                return self.text()
            case "n":
                return pick((0, 1, -1, 0.5, 3, 2**31, 2**63, 10**400, 3600, 1e308))
            case "b":
                return pick((True, False))
            case "l":
                return [self.value(depth + 1) for _ in range(self._random.randrange(4))]
            case "d":
                return {self.text(): self.value(depth + 1) for _ in range(self._random.randrange(4))}
        return None

    def create(self) -> dict[str, Any]:
        names = (
            "input_file_id", "endpoint", "completion_window", "metadata", "output_expires_after", "requests",
            "max_decoding_length", "max_context_length", "temperature", "top_p", "top_k", self.text(),
        )  # fmt: skip
        given = {"input_file_id": self.text(), "endpoint": "/v1/chat/completions"}
        return {**given, **{name: self.value() for name in names if self._random.random() < 0.3}}

    def upload(self) -> dict[str, Any]:
        given = {"bytes": 3, "filename": "a", "mime_type": "b", "purpose": "batch", "part_ids": [self.text()]}
        names = (*given, "expires_after", "md5", self.text())
        kept = {name: value for name, value in given.items() if (name == "part_ids") is (self._random.random() < 0.5)}
        return {**kept, **{name: self.value() for name in names if self._random.random() < 0.2}}

    def body(self) -> tuple[bytes, str]:
        """A body and its content type, mostly the one it is."""
        pick = self._random.choice
        form = b'--b\r\nContent-Disposition: form-data; name="%b"; filename="%b"\r\n\r\n%b\r\n--b%b' % (
            pick((b"file", b"purpose", b"data", b"x")),
            self.text().encode()[:99],
            self.text().encode(),
            pick((b"--", b"--\r\n", b"")),
        )
        return pick(
            (
                (json.dumps(self.create()).encode(), "application/json"),
                (json.dumps(self.create()).encode(), "application/json"),
                (json.dumps(self.upload()).encode(), "application/json"),
                (json.dumps(self.value()).encode()[:-1], "application/json"),
                (self._random.randbytes(self._random.randrange(300)), "application/json"),
                (b"[" * 100_000, "application/json"),
                (b'{"metadata":{"a":"\\ud800"}}', "application/json"),
                (form, "multipart/form-data; boundary=b"),
                (self._random.randbytes(300), "multipart/form-data; boundary=b"),
                (b"", pick(("", "text/html", "multipart/form-data", "application/json;;;", "\xff"))),
            )
        )

    def call(self) -> httpx.Request:
        pick = self._random.choice
        body, kind = self.body()
        query = {
            pick(("limit", "after", "order", "purpose", "status", "q", self.text())): self.text()
            for _ in range(self._random.randrange(3))
        }
        headers = [
            (
                "range",
                pick(("bytes=0-", "bytes=-1", "bytes=9-1", "bytes=99999-", "bytes=a-b", "lines=1-2", self.text())),
            ),
            ("if-range", pick(('"x"', "W/", "x"))),
            ("if-none-match", pick(("*", '"x"', ","))),
            ("expect", "100-continue"),
        ]
        kept = [(name, value) for name, value in headers if self._random.random() < 0.3]
        raw = [(n.encode(), v.encode().replace(b"\0", b"")) for n, v in kept]
        return httpx.Request(
            pick(("GET", "GET", "POST", "POST", "DELETE", "PUT", "PATCH", "OPTIONS")),
            self._url + self.path(),
            params=query,
            content=body,
            headers=[(b"content-type", kind.encode("latin-1")), *raw],
        )


async def test_garbage_is_refused_in_the_shape_of_errors(served_app: ServedApp) -> None:
    file = await served_app.upload(request())
    batch = await served_app.create()
    new = {"bytes": 3, "filename": "a", "mime_type": "b", "purpose": "batch"}
    upload = (await served_app.http.post("/v1/uploads", json=new)).json()
    garbage = Garbage(2, served_app.url, [file["id"], batch["id"], upload["id"], "tiny"])
    seen = set()
    for _ in range(ROUNDS):
        call = garbage.call()
        response = await served_app.http.send(call)
        seen.add(response.status_code)
        if response.status_code >= 400:
            code = error_of(response)["code"]
            assert (response.status_code, code) in DECLARED, (call.method, str(call.url), call.content, response.text)
    assert seen >= {200, 400, 404, 405, 415}

"""The OpenAPI document says what the app does: every route and method, and every answer as it really is."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator, ValidationError
from litestar import Litestar
from litestar.handlers import HTTPRouteHandler, get

from overnight.api.app import HANDLERS, create_app
from overnight.api.openapi.document import OPERATIONS, document
from overnight.catalog.routes import Routes
from overnight.catalog.upstream_route import UpstreamRoute
from overnight.domain.limits import Limits
from tests.api import described
from tests.api.conftest import Serve, ServedApp, request
from tests.api.described import DOCUMENT
from tests.batches.factory import lines, make_factory
from tests.witness import Witness
from tools import openapi_file

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def parts(of: Any, kind: str) -> Iterator[Any]:
    """Every member called `kind`, at any depth."""
    if isinstance(of, dict):
        if kind in of:
            yield of[kind]
        for part in of.values():
            yield from parts(part, kind)
    elif isinstance(of, list):
        for part in of:
            yield from parts(part, kind)


@pytest.fixture
async def routes() -> AsyncIterator[Routes]:
    """By which interactive requests reach a model."""
    with Witness() as witness:
        found = Routes([UpstreamRoute(witness.url, most_reply_bytes=lambda: 1_000_000)])
        for route in found:
            await route.tend()
        yield found
        await found.close()


def operations() -> dict[tuple[str, str], dict[str, Any]]:
    return {(method, path): found for path, methods in DOCUMENT["paths"].items() for method, found in methods.items()}


def test_every_route_and_method_of_the_app_is_described_and_no_other(served_app: ServedApp) -> None:
    app = create_app(served_app.deps)._app  # type: ignore[attr-defined]
    assert isinstance(app, Litestar)
    served = {
        (method.lower(), route.path_format) for route in app.routes for method in route.methods if method != "OPTIONS"
    }
    assert served == set(operations())
    assert {handler.fn.__name__ for handler in HANDLERS} == set(OPERATIONS)


def test_a_handler_that_nothing_is_said_of_is_an_error() -> None:
    @get("/new")
    async def do_something_new() -> None:
        """Do something new."""

    handlers: list[HTTPRouteHandler] = [*HANDLERS, do_something_new]
    with pytest.raises(KeyError, match="do_something_new"):
        document(handlers)


def test_all_references_lead_somewhere_and_every_component_is_used() -> None:
    used = {name for name in parts(DOCUMENT, "$ref") if isinstance(name, str)}
    kinds = ("schemas", "responses", "parameters", "headers")
    known = {f"#/components/{kind}/{name}" for kind in kinds for name in DOCUMENT["components"][kind]}
    # The line of result files is described for those who read downloads.
    assert used | {"#/components/schemas/ResultLine"} == known


def test_every_schema_is_one() -> None:
    schemas = [*DOCUMENT["components"]["schemas"].values(), *parts(DOCUMENT["paths"], "schema")]
    assert len(schemas) > 100
    for schema in schemas:
        Draft202012Validator.check_schema(schema)


def test_every_operation_has_a_name_of_its_own_a_summary_and_the_parameters_of_its_path() -> None:
    names = [found["operationId"] for found in operations().values()]
    assert len(set(names)) == len(names)
    for (_, path), found in operations().items():
        assert found["summary"].endswith(".")
        given = [described._resolved(part) for part in found["parameters"]]
        assert {part["name"] for part in given if part["in"] == "path"} == set(openapi_file.names_in(path))


def test_every_parameter_that_a_handler_reads_is_described_and_no_other() -> None:
    reads = re.compile(r'parameters\.(?!in_path)\w+\(\s*request,\s*"(\w+)"')
    read = {handler.fn.__name__: set(reads.findall(inspect.getsource(handler.fn))) for handler in HANDLERS}
    for found in operations().values():
        given = [described._resolved(part) for part in found["parameters"]]
        name = found["operationId"].removesuffix("_head")
        assert {part["name"] for part in given if part["in"] == "query"} == read[name], name


def test_the_copy_in_the_docs_is_the_document_that_is_served() -> None:
    assert openapi_file.FILE.read_text("utf-8") == openapi_file.text(), "run: python -m tools.openapi_file"


async def test_the_document_is_served(served_app: ServedApp) -> None:
    response = await served_app.http.get("/openapi.json")
    assert (response.headers["content-type"], response.json()) == ("application/json", DOCUMENT)


async def test_options_and_refused_methods_say_what_a_path_answers_to(served_app: ServedApp) -> None:
    for path, methods in DOCUMENT["paths"].items():
        sent = path.replace("{", "").replace("}", "")
        options = await served_app.http.options(sent)
        refused = await served_app.http.patch(sent)
        allowed = sorted({*map(str.upper, methods), "OPTIONS"})
        assert (options.status_code, sorted(options.headers["allow"].split(", "))) == (204, allowed), path
        assert (refused.status_code, sorted(refused.headers["allow"].split(", "))) == (405, allowed), path


class Answers:
    """Which answers of which operations were given; each was held against the document."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http
        self.seen: set[tuple[str, str, int]] = set()
        http.event_hooks["response"].append(self._note)

    async def _note(self, response: httpx.Response) -> None:
        path = described.path_of(response.request.url)
        assert path is not None
        self.seen.add((response.request.method.lower(), path, response.status_code))

    async def __call__(self, method: str, path: str, status: int = 200, **more: Any) -> httpx.Response:
        response = await self.http.request(method, path, **more)
        assert response.status_code == status, (method, path, response.text)
        if method == "GET":
            head = await self.http.head(path, **more)
            assert (head.status_code, head.content) == (200 if status == 206 else status, b"")
        return response


async def drive_files(call: Answers) -> None:
    form = {"purpose": "batch", "expires_after[anchor]": "created_at", "expires_after[seconds]": "3600"}
    bad = await call("POST", "/v1/files", data=form, files={"file": b"nonsense\n"})
    file = f"/v1/files/{bad.json()['id']}"
    await call("GET", "/v1/files")
    await call("GET", file)
    whole = await call("GET", f"{file}/content")
    await call("GET", f"{file}/content", 304, headers={"if-none-match": whole.headers["etag"]})
    await call("GET", f"{file}/content", 206, headers={"range": "bytes=0-1"})
    await call("DELETE", file)
    await call("GET", "/v1/files?limit=0", 400)
    await call("DELETE", file, 404)


async def drive_uploads(call: Answers) -> None:
    new = {"bytes": 3, "filename": "a", "mime_type": "b", "purpose": "batch"}
    first = (await call("POST", "/v1/uploads", json=new)).json()["id"]
    part = await call("POST", f"/v1/uploads/{first}/parts", files={"data": b"abc"})
    await call("GET", f"/v1/uploads/{first}")
    await call("POST", f"/v1/uploads/{first}/complete", json={"part_ids": [part.json()["id"]]})
    second = (await call("POST", "/v1/uploads", json=new)).json()["id"]
    await call("POST", f"/v1/uploads/{second}/cancel")
    await call("POST", f"/v1/uploads/{second}/parts", 400, files={"data": b"abc"})


async def drive_batches(call: Answers, done: str) -> None:
    key = {"idempotency-key": "a"}
    direct = await call("POST", "/v1/batches", json={"requests": [{"custom_id": "a", "body": CHAT}]}, headers=key)
    await call("POST", "/v1/batches", 409, json={"requests": [{"custom_id": "b", "body": CHAT}]}, headers=key)
    batch = f"/v1/batches/{direct.json()['id']}"
    await call("POST", "/v1/batches", 400, json={"requests": [{"custom_id": "a", "body": {}}]})
    await call("GET", "/v1/batches?status=validating&status=failed&q=batch_")
    await call("GET", batch)
    await call("POST", f"{batch}/pause")
    await call("GET", batch)
    await call("POST", f"{batch}/resume")
    await call("GET", f"{batch}/results")
    await call("GET", f"{batch}/output.jsonl")
    await call("GET", f"{batch}/unfinished.jsonl")
    await call("POST", f"{batch}/retry", 400)
    await call("POST", f"{batch}/cancel")
    await call("GET", f"{batch}/results")
    await call("DELETE", batch)
    await call("POST", "/v1/batches", 410, json={"requests": [{"custom_id": "a", "body": CHAT}]}, headers=key)
    output = f"/v1/batches/{done}/output.jsonl"
    whole = await call("GET", output)
    await call("GET", f"{output}?order=submitted")
    await call("GET", output, 304, headers={"if-none-match": whole.headers["etag"]})
    await call("GET", output, 206, headers={"range": "bytes=0-1"})
    await call("GET", f"/v1/batches/{done}/results?limit=1")
    await call("POST", f"/v1/batches/{done}/pause", 400)


async def drive_interactive(call: Answers) -> None:
    asked = CHAT | {"model": "test-model"}
    await call("POST", "/v1/chat/completions", json=asked)
    await call("POST", "/v1/chat/completions", 400, json={"model": "test-model"})
    await call("POST", "/v1/chat/completions", 404, json=CHAT | {"model": "nobody"})
    for status in (401, 403, 418, 429, 500, 503):
        said = {"role": "user", "content": f"[status {status}]"}
        await call("POST", "/v1/chat/completions", status, json=asked | {"messages": [said]})
    await call("POST", "/v1/completions", json={"model": "test-model", "prompt": "a"})
    await call("POST", "/v1/embeddings", json={"model": "test-model", "input": "a"})


async def test_every_answer_of_every_operation_is_as_it_is_described(serve: Serve, routes: Routes) -> None:
    served_app = await serve(routes=routes)
    make = await make_factory(served_app.store)
    done = await make.completed(lines(3))
    failed = await make.running(b"nonsense\n")
    call = Answers(served_app.http)
    await drive_files(call)
    await drive_uploads(call)
    await drive_batches(call, done.public_id)
    await drive_interactive(call)
    await call("GET", f"/v1/batches/{failed.public_id}")
    await call("POST", f"/v1/batches/{failed.public_id}/retry")
    for path in ("/v1/models", "/v1/models/m", "/v1/pool/status", "/health", "/metrics", "/openapi.json"):
        await call("GET", path)
    await call("GET", "/schemas/batch-input-line.json")
    await call("GET", "/schemas/other", 404)
    await call("GET", "/v1/models/gone", 404)
    served_app.reason = "loading"
    await call("GET", "/health", 503)

    good = {(*key, int(status)) for key, found in operations().items() for status in found["responses"] if status < "4"}
    assert good - call.seen == set()


async def test_refusals_for_want_of_room_are_as_they_are_described(serve: Serve) -> None:
    served = await serve(Limits(intake=0, create_body_bytes=300), disk_is_low=lambda: False)
    call = Answers(served.http)
    await make_factory(served.store)
    await call("POST", "/v1/batches", 413, content=b" " * 301, headers={"content-type": "application/json"})
    await call("POST", "/v1/batches", 415, content=b"{}")
    await call("POST", "/v1/batches", 400, json={"requests": [{"custom_id": "a", "body": CHAT}]})

    full = await serve(disk_is_low=lambda: True)
    call = Answers(full.http)
    await call("POST", "/v1/files", 507, files={"file": json.dumps(request()).encode()}, data={"purpose": "batch"})
    await call("POST", "/v1/uploads", 507, json={})
    await call("POST", "/v1/batches", 507, json={})


async def test_an_answer_that_is_not_described_is_noticed(served_app: ServedApp) -> None:
    asked = httpx.Request("GET", f"{served_app.url}/v1/pool/status")
    headers = {"x-request-id": "req_1", "content-type": "application/json"}
    good = (await served_app.http.get("/v1/pool/status")).json()

    await described.check(httpx.Response(200, json=good, headers=headers, request=asked))
    for status, body, given in (
        (200, {**good, "more": 1}, headers),
        (200, {**good, "active_batches": None}, headers),
        (202, good, headers),
        (200, good, {}),
        (200, good, {**headers, "content-type": "text/html"}),
    ):
        content = json.dumps(body).encode()
        answer = httpx.Response(status, content=content, headers=given, request=asked)
        with pytest.raises((AssertionError, ValidationError)):
            await described.check(answer)

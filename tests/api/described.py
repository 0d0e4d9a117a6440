"""Holds real answers against the OpenAPI document: status, headers, media type, and bodies field by field."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import httpx
from jsonschema import Draft202012Validator
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from overnight.api.app import HANDLERS
from overnight.api.openapi.document import document

DOCUMENT = document(HANDLERS)
_URI = "urn:overnight"


def closed(schema: Any) -> Any:
    """The same schema with no room for fields that it doesn't name."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: closed(part) for name, part in schema.items()}
    # What is only added to a referenced object names some of its fields, so it is no object by itself.
    if isinstance(found.get("properties"), dict) and "type" in found:
        found.setdefault("additionalProperties", False)
    return found


_REGISTRY: Registry[Any] = Registry().with_resource(_URI, DRAFT202012.create_resource(closed(DOCUMENT)))


def _resolved(part: dict[str, Any]) -> dict[str, Any]:
    found: Any = DOCUMENT
    if "$ref" not in part:
        return part
    for step in part["$ref"].removeprefix("#/").split("/"):
        found = found[step]
    return dict(found)


@cache
def _validator(*steps: str) -> Draft202012Validator:
    pointer = "/".join(step.replace("~", "~0").replace("/", "~1") for step in steps)
    return Draft202012Validator({"$ref": f"{_URI}#/{pointer}"}, registry=_REGISTRY)


@cache
def _paths() -> list[tuple[re.Pattern[str], str]]:
    found = []
    # A path without a parameter is meant where one with parameters fits too.
    for path in sorted(DOCUMENT["paths"], key=lambda path: path.count("{")):
        rest = ".+" if path.startswith("/v1/models/") else "[^/]+"
        found.append((re.compile(re.sub(r"\\{[a-z_]+\\}", rest, re.escape(path)), re.DOTALL), path))
    return found


def path_of(url: httpx.URL) -> str | None:
    """The path of the document that an address is one of."""
    sent = re.sub("/+", "/", url.path).removesuffix("/")
    return next((path for pattern, path in _paths() if pattern.fullmatch(sent)), None)


async def check(response: httpx.Response) -> None:
    """Raise AssertionError or jsonschema's ValidationError where an answer is not as it is described."""
    request = response.request
    method, path = request.method.lower(), path_of(request.url)
    told = f"{request.method} {request.url} → {response.status_code}"
    assert response.headers.get("x-request-id"), told
    if path is None or method not in DOCUMENT["paths"][path]:
        await _check_beside(response, path, method, told)
        return
    answers = DOCUMENT["paths"][path][method]["responses"]
    status = str(response.status_code)
    status = status if status in answers else f"{status[0]}XX"
    assert status in answers, f"{told} is not described"
    described = _resolved(answers[status])
    for name, part in described["headers"].items():
        _check_header(response, name, _resolved(part), told)
    if method == "head" or "content" not in described:
        return
    kind = response.headers["content-type"].partition(";")[0]
    assert kind in described["content"], f"{told} has the media type {kind}"
    if kind.endswith("json"):
        await response.aread()
        of_operation = ("paths", path, method, "responses", status)
        shared = ("components", "responses", answers[status].get("$ref", "").rpartition("/")[2])
        where = shared if "$ref" in answers[status] else of_operation
        _validator(*where, "content", kind, "schema").validate(response.json())


async def _check_beside(response: httpx.Response, path: str | None, method: str, told: str) -> None:
    if path is not None and response.status_code in (204, 405):
        allowed = {name.strip().lower() for name in response.headers["allow"].split(",")}
        assert allowed == {*DOCUMENT["paths"][path], "options"}, told
        assert (response.status_code == 204) is (method == "options"), told
        if method == "options":
            return
    assert response.status_code >= 400, told
    if method != "head":
        await response.aread()
        _validator("components", "schemas", "Error").validate(response.json())


def _check_header(response: httpx.Response, name: str, described: dict[str, Any], told: str) -> None:
    given = response.headers.get(name)
    if given is None:
        assert not described["required"], f"{told} has no {name}"
        return
    value = int(given) if described["schema"]["type"] == "integer" else given
    Draft202012Validator(described["schema"]).validate(value)

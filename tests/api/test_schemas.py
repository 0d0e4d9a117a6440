"""The schemas of lines are served."""

from __future__ import annotations

import pytest

from overnight.domain.line_schemas import LINE_SCHEMAS
from tests.api.conftest import ServedApp


@pytest.mark.parametrize("name", LINE_SCHEMAS)
async def test_a_schema_is_shown_by_its_name(served_app: ServedApp, name: str) -> None:
    response = await served_app.http.get(f"/schemas/{name}")

    assert (response.status_code, response.headers["content-type"]) == (200, "application/schema+json")
    assert response.json() == LINE_SCHEMAS[name]


async def test_a_schema_that_does_not_exist_is_not_found(served_app: ServedApp) -> None:
    response = await served_app.http.get("/schemas/other.json")

    assert (response.status_code, response.json()["error"]["code"]) == (404, "not_found")
    assert "batch-input-line.json" in response.json()["error"]["message"]

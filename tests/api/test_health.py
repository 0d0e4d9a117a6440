"""How the process says that it is well, and what the deployment shows of itself."""

from __future__ import annotations

from tests.api.conftest import ServedApp


async def test_health_is_one_word_or_a_reason(served_app: ServedApp) -> None:
    well = await served_app.http.get("/health")
    served_app.reason = "loading"
    unwell = await served_app.http.get("/health")
    assert (well.status_code, well.json()) == (200, {"status": "healthy"})
    assert (unwell.status_code, unwell.json()) == (503, {"status": "unhealthy", "reason": "loading"})


async def test_the_pool_shows_what_waits(served_app: ServedApp) -> None:
    await served_app.create()
    status = (await served_app.http.get("/v1/pool/status")).json()
    assert (status["intake_pool_size"], status["active_batches"], status["pool_mode"]) == (1, 1, True)
    assert status["intake_pool_capacity"] == 1_000_000
    assert status["scheduling_pool_free"] == status["scheduling_pool_capacity"] - status["scheduling_pool_active"]
    assert status["oldest_waiting_seconds"] >= 0


async def test_metrics_count_calls_by_route_and_show_the_pool(served_app: ServedApp) -> None:
    await served_app.create()
    for name in ("batch_1", "batch_2"):
        await served_app.http.get(f"/v1/batches/{name}")
    text = (await served_app.http.get("/metrics")).text
    samples = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    count = 'overnight_api_seconds_count{method="GET",route="/v1/batches/{batch_id}",status="404"}'
    assert float(samples[count]) >= 2
    assert samples["overnight_intake_pool_size"] == "1"
    assert "batch_1" not in text


async def test_metrics_are_there_without_a_database(served_app: ServedApp) -> None:
    await served_app.store.close()
    response = await served_app.http.get("/metrics")
    assert response.status_code == 200
    assert "overnight_events" in response.text
    assert "overnight_intake_pool_size" not in response.text

"""The whole of a worker, on a real database and a real server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from overnight.domain import backoff
from overnight.domain.limits import Limits
from overnight.store.pool import Store
from overnight.worker import start
from tests.scripted_upstream import Asked, Gate, Say, Upstream, completion, echo, failure
from tests.worker.rig import Rig, add_batch, add_owner, names, request, results, rigged, value, values


async def test_every_request_gets_exactly_one_answer(rig: Rig) -> None:
    batch = await add_batch(rig.store, [request(f"r{i}") for i in range(500)])
    await rig.finish()
    found = await results(rig.store, batch)
    assert found.keys() == names(500)
    assert all(
        line["response"]["body"]["choices"][0]["message"]["content"] == f"hello {name}" for name, line in found.items()
    )
    assert max(rig.upstream.arrivals.values()) == 1
    assert await value(rig.store, "SELECT input_tokens FROM batch WHERE no = $1", batch) == 3_500


async def test_answers_that_are_gathered_for_a_while_are_taken_in_once(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with thousands of requests in flight, each of which takes seconds."""
    monkeypatch.setattr(start, "MANY", 1)
    monkeypatch.setattr(start, "PART", 1.0)
    batch = await add_batch(rig.store, [request(f"r{i}") for i in range(200)])
    await rig.finish()
    assert (await results(rig.store, batch)).keys() == names(200)
    assert max(rig.upstream.arrivals.values()) == 1
    assert rig.worker.running == 0


async def test_everything_sent_was_written_down_before(rig: Rig) -> None:
    unwritten = []

    async def check(asked: Asked) -> Say:
        line = int(asked.name[1:])
        if not await value(rig.store, "SELECT count(*) FROM attempt WHERE lines @> ARRAY[$1::integer]", line):
            unwritten.append(line)
        return await echo(asked)

    rig.upstream.script = check
    batch = await add_batch(rig.store, [request(f"r{i}") for i in range(100)])
    await rig.finish()
    assert len(await results(rig.store, batch)) == 100
    assert unwritten == []


async def test_ended_blocks_are_done_and_their_batch_is_told(rig: Rig) -> None:
    batch = await add_batch(rig.store, [request(f"r{i}") for i in range(70)], of_each=32)
    await rig.finish()
    blocks = await values(rig.store, "SELECT state, worker FROM block ORDER BY seq")
    assert [(row["state"], row["worker"]) for row in blocks] == [("done", None)] * 3
    assert set(rig.committed) == {batch}


async def test_batches_of_several_owners_run_side_by_side(rig: Rig) -> None:
    other = await add_owner(rig.store, "other")
    large = await add_batch(rig.store, [request(f"r{i}") for i in range(600)])
    small = await add_batch(rig.store, [request("small")], owner=other)
    await rig.finish()
    assert len(await results(rig.store, large)) == 600
    assert len(await results(rig.store, small)) == 1
    order = [asked.name for asked in rig.upstream.asked]
    # It came last and starts among the first: the large batch's first block alone holds 256.
    assert order.index("small") < 200


async def test_a_block_of_every_batch_is_held_and_not_many_more(store: Store, upstream: Upstream) -> None:
    gate = Gate()
    upstream.script = gate
    for _ in range(5):
        await add_batch(store, [request(f"r{i}") for i in range(200)], of_each=20)
    async with rigged(store, upstream, slots=1) as rig:
        await rig.until(lambda: upstream.in_flight == 1)
        while await rig.worker.round():
            pass
        rows = await values(store, "SELECT batch, count(*) AS n FROM block WHERE state = 'leased' GROUP BY batch")
        assert len(rows) == 5
        assert sum(row["n"] for row in rows) <= 8
        gate.open()


async def test_only_the_named_batch_runs(store: Store, upstream: Upstream) -> None:
    mine = await add_batch(store, [request("mine")])
    await add_batch(store, [request("not mine")])
    async with rigged(store, upstream, only=mine) as rig:
        await rig.finish()
    assert list(upstream.arrivals) == ["mine"]


async def test_slots_are_filled_and_never_exceeded(store: Store, upstream: Upstream) -> None:
    gate = Gate()
    upstream.script = gate
    await add_batch(store, [request(f"r{i}") for i in range(100)])
    async with rigged(store, upstream, slots=7) as rig:
        await rig.until(lambda: upstream.in_flight == 7)
        gate.open()
        await rig.finish()
    assert upstream.most_in_flight == 7


async def test_the_cap_of_a_model_is_never_exceeded(store: Store, upstream: Upstream) -> None:
    upstream.models = Say(body=b'{"data":[{"id":"m"},{"id":"n"}]}')
    running: dict[str, int] = {"m": 0, "n": 0}
    most: dict[str, int] = {"m": 0, "n": 0}
    gate = Gate()

    async def count(asked: Asked) -> Say:
        model = asked.body["model"]
        running[model] += 1
        most[model] = max(most[model], running[model])
        try:
            return await gate(asked)
        finally:
            running[model] -= 1

    upstream.script = count
    await add_batch(store, [request(f"m{i}") for i in range(40)])
    await add_batch(store, [request(f"n{i}", model="n") for i in range(40)], model="n")
    async with rigged(store, upstream, slots=20, limits=Limits(per_model=3, request_seconds=60)) as rig:
        await rig.until(lambda: running == {"m": 3, "n": 3})
        gate.open()
        await rig.finish()
    assert most == {"m": 3, "n": 3}
    assert len(upstream.asked) == 80


async def test_the_defaults_of_a_batch_are_added_to_what_is_sent(rig: Rig) -> None:
    await add_batch(
        rig.store,
        [request("a"), request("b", temperature=0.5)],
        defaults={"temperature": 0.1, "max_decoding_length": 9},
    )
    await rig.finish()
    sent = {asked.name: (asked.body["temperature"], asked.body["max_tokens"]) for asked in rig.upstream.asked}
    assert sent == {"a": (0.1, 9), "b": (0.5, 9)}
    assert {asked.path for asked in rig.upstream.asked} == {"/v1/chat/completions"}


async def test_a_server_that_does_not_list_its_models_gets_whatever_is_asked_for(
    store: Store, upstream: Upstream
) -> None:
    upstream.models = Say(404)
    batches = [await add_batch(store, [request("a", model=f"m{i}")], model=f"m{i}") for i in range(100)]
    async with rigged(store, upstream) as rig:
        await rig.finish()
        # Names are made up without end: those of ended batches are not remembered for ever.
        assert rig.worker.models <= 40
    assert all([await results(store, batch) for batch in batches])
    assert {asked.body["model"] for asked in upstream.asked} == {f"m{i}" for i in range(100)}


FINAL: dict[str, tuple[Say, str]] = {
    "bad request": (Say(400, failure("bad")), "invalid_request"),
    "unknown model": (Say(404, failure("none")), "model_not_found"),
    "error in a 200": (Say(200, b'{"error":{"message":"no","code":400}}'), "invalid_request"),
    "not json": (Say(200, b"hello"), "upstream_error"),
    "not utf-8": (Say(200, b'{"a":"\xff"}'), "upstream_error"),
    "not finite": (Say(200, b'{"a":1e999}'), "upstream_error"),
    "too large": (Say(200, completion("x" * 10_000)), "result_too_large"),
}


@pytest.mark.parametrize("case", FINAL)
async def test_what_no_other_try_would_change_fails_at_once(store: Store, upstream: Upstream, case: str) -> None:
    say, code = FINAL[case]

    async def script(asked: Asked) -> Say:
        return say if asked.name == "bad" else await echo(asked)

    upstream.script = script
    batch = await add_batch(store, [request("good"), request("bad")])
    async with rigged(store, upstream, limits=Limits(result_bytes=5_000)) as rig:
        await rig.finish()
    found = await results(store, batch)
    assert found["good"]["error"] is None
    assert found["bad"]["response"] is None
    assert found["bad"]["error"]["code"] == code
    assert upstream.arrivals["bad"] == 1


PASSING: dict[str, Say] = {
    "busy": Say(429, failure("busy")),
    "busy for a moment": Say(429, failure("busy"), {"Retry-After": "0"}),
    "broken": Say(500, failure("broken")),
    "overloaded": Say(503, failure("overloaded")),
    "no http": Say(raw=b"hello\r\n\r\n"),
    "nothing": Say(raw=b""),
    "cut": Say(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"),
}


@pytest.mark.usefixtures("short_waits")
@pytest.mark.parametrize("case", PASSING)
async def test_what_may_pass_is_tried_again(rig: Rig, case: str) -> None:
    async def script(asked: Asked) -> Say:
        return PASSING[case] if asked.name == "bad" and asked.time < 3 else await echo(asked)

    rig.upstream.script = script
    batch = await add_batch(rig.store, [request("good"), request("bad")])
    await rig.finish()
    found = await results(rig.store, batch)
    assert found["bad"]["error"] is None
    assert rig.upstream.arrivals == {"good": 1, "bad": 3}
    assert await value(rig.store, "SELECT tries FROM answer WHERE line = 1") == 3
    calls = await values(rig.store, "SELECT line, try, counted, code FROM call ORDER BY try")
    assert [(row["line"], row["try"], row["counted"]) for row in calls] == [(1, 1, True), (1, 2, True)]


async def test_a_request_that_takes_too_long_fails_with_a_timeout(store: Store, upstream: Upstream) -> None:
    gates = {"quick": Gate(), "slow": Gate()}

    async def script(asked: Asked) -> Say:
        return await gates[asked.name](asked)

    upstream.script = script
    limits = Limits(request_seconds=60.0)
    batch = await add_batch(store, [request("quick"), request("slow")])
    async with rigged(store, upstream, limits=limits, slots=1) as rig:
        await rig.until(lambda: list(upstream.arrivals) == ["quick"])
        limits.request_seconds = 0.05
        gates["quick"].open()
        await rig.finish()
    gates["slow"].open()
    found = await results(store, batch)
    assert found["slow"]["error"]["code"] == "timeout"
    assert found["quick"]["error"] is None


async def test_a_request_that_waits_for_another_try_holds_no_slot(store: Store, upstream: Upstream) -> None:
    async def script(asked: Asked) -> Say:
        return Say(500, failure("broken")) if asked.name == "r0" else await echo(asked)

    upstream.script = script
    batch = await add_batch(store, [request(f"r{i}") for i in range(20)])
    async with rigged(store, upstream, slots=1) as rig:
        await rig.until(lambda: len(upstream.arrivals) == 20)
        await rig.until(lambda: rig.worker.running == 0)
        assert upstream.arrivals["r0"] == 1
        wait = await value(store, "SELECT extract(epoch FROM again_at - at)::float FROM call WHERE line = 0")
        assert 2 < wait <= 5.1
    assert "r0" not in await results(store, batch)


async def test_a_longer_wait_that_the_server_asks_for_is_honoured(store: Store, upstream: Upstream) -> None:
    async def busy(_: Asked) -> Say:
        return Say(429, failure("busy"), {"Retry-After": "60"})

    upstream.script = busy
    await add_batch(store, [request("a")])
    async with rigged(store, upstream) as rig:
        await rig.until(lambda: upstream.arrivals["a"] == 1 and rig.worker.running == 0)
        await rig.worker.round()
    assert 59 < await value(store, "SELECT extract(epoch FROM again_at - at)::float FROM call") < 61


async def test_a_request_fails_now_where_its_next_try_would_start_too_late(
    store: Store, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "FIRST", backoff.LONGEST)

    async def broken(_: Asked) -> Say:
        return Say(500, failure("broken", "the disk is full"))

    upstream.script = broken
    batch = await add_batch(store, [request("a")], window=backoff.LONGEST / 3)
    async with rigged(store, upstream) as rig:
        await rig.until(lambda: bool(rig.committed))
    error = (await results(store, batch))["a"]["error"]
    assert (error["code"], error["status"]) == ("upstream_error", 500)
    assert "the disk is full" in error["message"]
    assert "window closes" in error["message"]


async def test_a_model_that_waits_for_a_machine_is_left_alone_and_uses_no_try(store: Store, upstream: Upstream) -> None:
    async def script(asked: Asked) -> Say:
        if asked.name == "r0" and asked.time == 1:
            return Say(503, failure("model_queued"), {"Retry-After": "0"})
        return await echo(asked)

    upstream.script = script
    batch = await add_batch(store, [request(f"r{i}") for i in range(5)])
    async with rigged(store, upstream, slots=1) as rig:
        await rig.until(lambda: len(upstream.asked) == 1 and rig.worker.running == 0)
        await rig.worker.round()
        # Only the first was asked for: the others wait for the model, too.
        assert list(upstream.arrivals) == ["r0"]
        await rig.finish()
    assert len(await results(store, batch)) == 5
    assert await value(store, "SELECT tries FROM answer WHERE line = 0") == 1
    assert await value(store, "SELECT counted FROM call") is False


async def test_odd_custom_ids_come_back_as_they_were(rig: Rig) -> None:
    odd = ['quo"te\\', "emoji 🌙", "line\u2028end", "nul\x00", "\x85 next"]
    batch = await add_batch(rig.store, [_with_id(name, i) for i, name in enumerate(odd)])
    await rig.finish()
    assert (await results(rig.store, batch)).keys() == set(odd)


def _with_id(custom_id: str, number: int) -> bytes:
    line: dict[str, Any] = json.loads(request(f"r{number}"))
    return json.dumps({**line, "custom_id": custom_id}).encode()

"""A direct batch starts as it was taken, waits for its models where there were none, and ends without files."""

from __future__ import annotations

import json
from typing import Any

import pytest

from overnight.batches import create as creating
from overnight.batches.cancel import cancel
from overnight.batches.request import read_create
from overnight.batches.shape import BatchView
from overnight.domain.limits import MOST_PROBLEMS
from overnight.domain.states import Status
from overnight.store import batches, blocks
from overnight.store.served import Offer, serve
from overnight.upkeep.validate import Validate
from tests.batches.factory import Factory, serve_m
from tests.upkeep.fuse import Crash, Fuse, FusedStore

BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def named(*models: str) -> list[dict[str, Any]]:
    """Requests named r0, r1, … of these models."""
    return [{"custom_id": f"r{i}", "body": {**BODY, "model": model}} for i, model in enumerate(models)]


async def direct(make: Factory, *models: str) -> BatchView:
    """A batch that was just created."""
    return await stored(make, named(*models))


async def stored(make: Factory, requests: list[dict[str, Any]]) -> BatchView:
    new = read_create(json.dumps({"requests": requests}).encode())
    return await creating.create(make.store, make.limits, make.owner, new)


async def begun(make: Factory, batch: BatchView) -> BatchView:
    while await Validate(make.deps).round():
        pass
    return await make.look(batch)


async def models_of(make: Factory) -> list[str]:
    found: list[str] = await make.value("SELECT array_agg(DISTINCT model ORDER BY model) FROM block")
    return found


async def test_a_batch_of_one_model_starts_with_all_its_requests(make: Factory) -> None:
    batch = await begun(make, await direct(make, "m", "nick", "m"))
    assert (batch.status, batch.model, batch.counts.total) == (Status.IN_PROGRESS, "m", 3)
    assert batch.moments.in_progress_at is not None


async def test_a_batch_of_several_models_starts(make: Factory) -> None:
    batch = await begun(make, await direct(make, "m", "other"))
    assert (batch.status, batch.model) == (Status.IN_PROGRESS, None)
    assert await models_of(make) == ["m", "other"]


async def test_models_are_those_that_the_names_meant_at_the_create(make: Factory) -> None:
    """Whatever names mean when it starts, and even where nothing is served any more."""
    batch = await direct(make, "nick")
    await serve(make.store, make.life.no, [Offer("m2", ("nick",), None, ("chat",))])
    assert (await begun(make, batch)).model == "m"
    second = await direct(make, "nick")
    await serve(make.store, make.life.no, [])
    assert (await begun(make, second)).model == "m2"
    assert await models_of(make) == ["m", "m2"]


async def test_a_batch_taken_while_nothing_was_served_waits_for_a_model(make: Factory) -> None:
    await serve(make.store, make.life.no, [])
    batch = await direct(make, "nick", "m", "other")
    assert await Validate(make.deps).round() is False
    assert (await make.look(batch)).status is Status.VALIDATING

    await serve_m(make.store, make.life)
    batch = await begun(make, batch)

    assert (batch.status, batch.model) == (Status.IN_PROGRESS, None)
    assert await models_of(make) == ["m", "other"]


async def test_names_may_change_places(make: Factory) -> None:
    await serve(make.store, make.life.no, [])
    batch = await direct(make, "a", "b", "b")
    await serve(make.store, make.life.no, [Offer("b2", ("a",), None, ("chat",)), Offer("a2", ("b",), None, ("chat",))])
    await begun(make, batch)
    assert await make.value("SELECT count FROM block WHERE model = 'b2'") == 1
    assert await make.value("SELECT count FROM block WHERE model = 'a2'") == 2


async def test_a_batch_that_waited_for_a_model_that_never_came_is_refused_with_all_problems(make: Factory) -> None:
    await serve(make.store, make.life.no, [])
    batch = await direct(make, "gone", "m", "lost", "gone")
    await serve_m(make.store, make.life)
    batch = await begun(make, batch)
    assert (batch.status, batch.counts.total) == (Status.FAILED, 0)
    assert batch.errors is not None
    found = [(e["code"], e["line"], e["param"]) for e in batch.errors]
    assert found == [("model_not_found", line, "body.model") for line in (1, 3, 4)]
    assert batch.error is not None
    assert "3 problems" in batch.error[1]
    assert await make.value("SELECT count(*) FROM block") == 0
    assert await make.value("SELECT count(*) FROM roll") == 0


async def test_a_batch_that_waited_for_its_models_is_refused_for_what_their_servers_cannot_carry(make: Factory) -> None:
    """With all problems: also those of names that nobody serves, in the order of the requests."""
    await serve(make.store, make.life.no, [])
    asked: list[dict[str, Any]] = named("gone", "m", "nick", "whole", "nick")
    for request in asked[1:]:
        request["body"]["logit_bias"] = {"1": 1} if request is not asked[2] else None
    batch = await stored(make, asked)
    lacking = Offer("m", ("nick",), None, ("chat",), lacks=("logit_bias",))
    await serve(make.store, make.life.no, [lacking, Offer("whole", (), None, ("chat",))])

    batch = await begun(make, batch)

    assert (batch.status, batch.counts.total) == (Status.FAILED, 0)
    assert [(e["code"], e["line"], e["param"]) for e in batch.errors or []] == [
        ("model_not_found", 1, "body.model"),
        ("invalid_parameter", 2, "body.logit_bias"),
        ("invalid_parameter", 5, "body.logit_bias"),
    ]


async def test_a_batch_that_waited_for_its_models_starts_where_they_carry_what_it_asks_for(make: Factory) -> None:
    await serve(make.store, make.life.no, [])
    batch = await stored(make, named("m", "m"))
    await serve(make.store, make.life.no, [Offer("m", (), None, ("chat",), lacks=("logit_bias",))])
    assert (await begun(make, batch)).status is Status.IN_PROGRESS


async def test_of_very_many_problems_the_first_are_shown_and_all_are_counted(make: Factory) -> None:
    await serve(make.store, make.life.no, [])
    batch = await direct(make, *["gone", "lost"] * MOST_PROBLEMS)
    await serve_m(make.store, make.life)
    batch = await begun(make, batch)
    assert batch.errors is not None
    assert [e["line"] for e in batch.errors] == list(range(1, MOST_PROBLEMS + 1))
    assert f"there are {2 * MOST_PROBLEMS:,}." in batch.errors[-1]["message"]


@pytest.mark.parametrize("models", [("m",), ("nick", "other"), ("nick", "gone")])
async def test_a_start_that_is_interrupted_anywhere_is_made_again_whole(make: Factory, models: tuple[str, ...]) -> None:
    await serve(make.store, make.life.no, [])
    batch = await direct(make, *models)
    await serve_m(make.store, make.life)
    before = await make.value("SELECT md5(string_agg(data, '' ORDER BY seq)) FROM block")
    steps = 0
    while True:
        fuse = Fuse(steps)
        deps = type(make.deps)(FusedStore(make.store, fuse), make.life, make.limits)
        try:
            await Validate(deps).round()
        except Crash:
            pass
        if not fuse.blown:
            break
        steps += 1
    assert steps > 5
    batch = await begun(make, batch)
    if "gone" in models:
        assert batch.status is Status.FAILED
    else:
        assert (batch.status, batch.counts.total) == (Status.IN_PROGRESS, len(models))
        assert await make.value("SELECT md5(string_agg(data, '' ORDER BY seq)) FROM block") == before


async def test_a_direct_batch_ends_without_files(make: Factory) -> None:
    batch = await begun(make, await direct(make, "m", "m", "m"))
    held = await make.lease(batch)
    await make.answer(batch, [0, 1])
    await make.answer(batch, [2], kind=1)
    await make.let_go(held, done=True)
    ended = await make.sealed(batch)
    assert ended.status is Status.COMPLETED
    assert (ended.counts.completed, ended.counts.failed) == (2, 1)
    assert (ended.output_file_id, ended.error_file_id) == (None, None)
    assert await make.value("SELECT count(*) FROM file") == 0
    output, errors = await make.results(ended)
    assert (set(output), set(errors)) == ({"r0", "r1"}, {"r2"})


@pytest.mark.parametrize("starts", [False, True])
async def test_every_request_of_a_cancelled_batch_has_its_answer(make: Factory, starts: bool) -> None:
    batch = await direct(make, "m", "other", "m")
    if starts:
        batch = await begun(make, batch)
    await cancel(make.store, make.owner, batch.public_id)
    ended = await make.sealed(batch)
    assert (ended.status, ended.counts.cancelled, ended.error_file_id) == (Status.CANCELLED, 3, None)
    _, errors = await make.results(ended)
    assert {name: row["error"]["code"] for name, row in errors.items()} == dict.fromkeys(
        ("r0", "r1", "r2"), "batch_cancelled"
    )
    assert [row["no"] for row in await batches.list_ended(make.store, ended.moments.created_at, 0, 10)] == [batch.no]


async def test_a_batch_cancelled_while_it_waits_for_its_models_does_not_start(make: Factory) -> None:
    await serve(make.store, make.life.no, [])
    batch = await direct(make, "m")
    await cancel(make.store, make.owner, batch.public_id)
    await serve_m(make.store, make.life)
    assert (await begun(make, batch)).status is Status.CANCELLING
    assert (await make.sealed(batch)).status is Status.CANCELLED


async def test_blocks_are_read_in_pieces(make: Factory) -> None:
    await serve(make.store, make.life.no, [])
    batch = await direct(make, *["a"] * 2_000, *["b"] * 10)
    async with make.store.session() as session:
        found = [number async for number, _ in blocks.read_of_models(session, batch.no, ["a"])]
    assert sorted(found) == list(range(2_000))

"""A batch starts with every request of its file, or is refused with every problem, however often it is interrupted."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

from overnight.batches import create as creating
from overnight.batches.cancel import cancel
from overnight.batches.check import BatchCheck
from overnight.batches.request import NewBatch
from overnight.batches.shape import BatchView
from overnight.domain.limits import BLOCK_LINES, MOST_PROBLEMS
from overnight.domain.plan import BLOCKS_LEFT, LEAST_LINES, Block
from overnight.domain.prefix import Shape
from overnight.domain.states import Status
from overnight.files.delete import delete
from overnight.store import batches, blocks
from overnight.store.answers import Fenced
from overnight.store.served import Offer, serve
from overnight.upkeep import ingest
from overnight.upkeep.ingest import Ingest, Lost
from overnight.upkeep.validate import Validate
from tests.batches.factory import CHAT, Factory, line, lines


async def stored(make: Factory, batch: BatchView) -> dict[int, bytes]:
    """Line → request, of all blocks; each line once."""
    async with make.store.session() as session:
        rows = await session.connection.fetch(
            "SELECT seq, count, lines, ids, data FROM block WHERE batch = $1 ORDER BY seq", batch.no
        )
    found: dict[int, bytes] = {}
    assert [row["seq"] for row in rows] == list(range(len(rows)))
    for row in rows:
        requests = blocks.unpack(row["data"])
        assert len(requests) == row["count"] == len(row["lines"]) == len(row["ids"])
        assert row["ids"] == sorted(row["ids"])
        assert not found.keys() & set(row["lines"])
        found.update(zip(row["lines"], requests, strict=True))
    return found


async def errors(make: Factory, text: bytes, **given: Any) -> list[tuple[str, int | None, str | None]]:
    """Code, line and param of the errors of a batch that is refused."""
    batch = await make.running(text, **given)
    assert batch.status is Status.FAILED
    assert batch.moments.failed_at is not None
    assert (batch.counts.total, batch.output_file_id, batch.error_file_id) == (0, None, None)
    assert await make.value("SELECT count(*) FROM block WHERE batch = $1", batch.no) == 0
    assert batch.errors is not None
    return [(error["code"], error["line"], error["param"]) for error in batch.errors]


async def test_the_requests_are_stored_as_they_came(make: Factory) -> None:
    odd = (
        b'{ "custom_id" : "r1" ,"method":"POST","url":"%b","body":{"model":"m","seed":12345678901234567890123,'
        % (CHAT.encode())
        + b'"messages":[{"role":"user","content":"\\u00e9\\u2028 \xc3\xa9\xe2\x80\xa8"}]}}'
    )
    text = b"\xef\xbb\xbf" + line("r0") + b"\r\n\n" + odd + b"\n   \n" + line("r2")

    batch = await make.running(text)

    assert batch.status is Status.IN_PROGRESS
    assert (batch.model, batch.counts.total) == ("m", 3)
    assert await stored(make, batch) == {0: line("r0"), 2: odd, 4: line("r2")}


async def test_requests_that_share_a_prompt_stand_together(make: Factory) -> None:
    prompts = [[{"role": "system", "content": f"Prompt {i % 3}"}, {"role": "user", "content": "?"}] for i in range(900)]
    text = b"".join(line(f"r{i}", messages=prompt) + b"\n" for i, prompt in enumerate(prompts))
    batch = await make.running(text)
    found = await stored(make, batch)
    assert sorted(found) == list(range(900))
    changes = [a % 3 != b % 3 for a, b in zip(list(found)[:-1], list(found)[1:], strict=True)]
    assert sum(changes) <= await make.value("SELECT count(*) FROM block") < 50


async def test_no_block_is_larger_than_it_may_be(make: Factory) -> None:
    batch = await make.running(lines(BLOCK_LINES * (BLOCKS_LEFT + 2)))
    await stored(make, batch)
    assert await make.value("SELECT max(count) FROM block") == BLOCK_LINES
    # The last ones are small, so that no server is left alone with the end of a batch.
    assert await make.value("SELECT max(count) FROM block WHERE first >= $1", batch.counts.total - 100) <= LEAST_LINES


async def test_a_name_and_its_alias_are_one_model(make: Factory) -> None:
    batch = await make.running(line("a", model="nick") + b"\n" + line("b", model="m"))
    assert (batch.status, batch.model) == (Status.IN_PROGRESS, "m")
    assert await make.value("SELECT array_agg(DISTINCT model) FROM block") == ["m"]


async def test_a_server_that_lists_nothing_takes_every_name(make: Factory) -> None:
    await serve(make.store, make.life.no, [Offer("*", (), None, ("chat",), any_model=True)])
    batch = await make.running(lines(2, model="whatever"))
    assert (batch.status, batch.model) == (Status.IN_PROGRESS, "whatever")


async def test_all_problems_are_told_at_once(make: Factory) -> None:
    text = b"\n".join(
        [
            line("a"),
            line("b", url="/v1/embeddings", input="x"),
            line("c", model="gone"),
            b"",
            line("d", model="other"),
            line("e"),
        ]
    )
    assert await errors(make, text) == [
        ("mismatched_endpoint", 2, "url"),
        ("model_not_found", 3, "body.model"),
        ("mismatched_model", 5, "body.model"),
    ]


async def test_a_model_that_does_not_serve_the_endpoint_is_not_found(make: Factory) -> None:
    await serve(make.store, make.life.no, [Offer("m", (), None, ("embeddings",))])
    batch = await make.running(lines(1))
    assert batch.status is Status.FAILED
    assert [(e["code"], e["line"], e["param"]) for e in batch.errors or []] == [("model_not_found", 1, "body.model")]
    assert "does not answer to /v1/chat/completions" in (batch.errors or [])[0]["message"]


async def test_a_field_that_some_server_of_the_model_cannot_carry_refuses_the_batch(make: Factory) -> None:
    await serve(
        make.store, make.life.no, [Offer("m", (), None, ("chat",), lacks=("messages.image_url", "guided_json"))]
    )
    part = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    seen: dict[str, Any] = {"messages": [{"role": "user", "content": [part]}]}
    text = b"\n".join([line("a"), line("b", guided_json={}), line("c", **seen), line("d", guided_json=None)])

    assert await errors(make, text) == [
        ("invalid_parameter", 2, "body.guided_json"),
        ("invalid_parameter", 3, "body.messages[0].content[0]"),
    ]


async def test_the_problems_of_the_upload_refuse_the_batch_without_reading_it(make: Factory) -> None:
    text = lines(2) + b"nonsense\n" + line("r1") + b"\n" + line("x", stream=True)
    batch = await make.batch(text)
    await make.run("UPDATE file_chunk SET data = 'gone'")
    await Validate(make.deps).round()
    seen = await make.look(batch)
    assert seen.errors is not None
    assert [(error["code"], error["line"]) for error in seen.errors] == [
        ("invalid_json_line", 3),
        ("streaming_not_supported", 5),
        ("duplicate_custom_id", 4),
    ]
    assert all(error["message"] for error in seen.errors)
    assert seen.error == ("invalid_json_line", seen.errors[0]["message"] + " (the first of 3 problems)")


async def test_at_most_a_thousand_problems_are_listed_and_all_are_counted(make: Factory) -> None:
    for text in (b"nonsense\n" * 1_234, lines(1_234, model="gone")):
        batch = await make.running(text)
        assert batch.errors is not None
        assert len(batch.errors) == MOST_PROBLEMS
        assert "1,234" in batch.errors[-1]["message"]
        assert batch.error is not None
        assert "1,234" in batch.error[1]


async def test_an_empty_file_is_refused(make: Factory) -> None:
    assert await errors(make, b"\n  \n\n") == [("empty_file", None, None)]


async def test_a_file_larger_than_the_queue_is_refused(make: Factory) -> None:
    make.limits = dataclasses.replace(make.limits, intake=5)
    assert await errors(make, lines(6)) == [("too_many_requests", None, "input_file_id")]
    assert (await make.running(lines(5))).status is Status.IN_PROGRESS


async def test_a_line_over_a_limit_that_was_lowered_before_the_create_is_refused(make: Factory) -> None:
    file = await make.file(lines(1) + line("r1", user="x" * 400))
    make.limits = dataclasses.replace(make.limits, line_bytes=300)
    batch = await creating.create(make.store, make.limits, make.owner, NewBatch(file.public_id, CHAT))
    await Validate(make.deps).round()
    seen = await make.look(batch)
    assert seen.errors is not None
    assert [(e["code"], e["line"]) for e in seen.errors] == [("line_too_long", 2)]


async def test_a_file_that_was_checked_less_strictly_is_checked_again(make: Factory) -> None:
    text = lines(1) + b'{"a":NaN}\n' + line("r0") + b"\n"
    file = await make.file(text, checks=0)
    assert file.problem_count == 0
    bad = await make.batch(lines(1))
    await make.run("UPDATE batch SET input_file = $1, input_file_id = $2", file.no, file.id)
    await Validate(make.deps).round()
    seen = await make.look(bad)
    assert seen.errors is not None
    assert [(e["code"], e["line"]) for e in seen.errors] == [("invalid_json_line", 2), ("duplicate_custom_id", 3)]

    good = await make.file(lines(3), checks=0)
    batch = await make.batch(lines(1))
    await make.run("UPDATE batch SET input_file = $1, input_file_id = $2 WHERE no = $3", good.no, good.id, batch.no)
    await Validate(make.deps).round()
    assert (await make.look(batch)).counts.total == 3


@pytest.mark.parametrize("how", ["deleted", "expired"])
async def test_a_file_deleted_or_expired_before_it_was_read_is_told(make: Factory, how: str) -> None:
    batch = await make.batch()
    assert batch.input_file_id is not None
    if how == "deleted":
        await delete(make.store, make.owner, f"file-{batch.input_file_id.hex}")
    else:
        await make.run("UPDATE file SET expires_at = now()")
    await Validate(make.deps).round()
    seen = await make.look(batch)
    assert (seen.status, seen.error and seen.error[0]) == (Status.FAILED, "file_not_found")
    assert seen.errors is not None
    assert [(e["code"], e["line"], e["param"]) for e in seen.errors] == [("file_not_found", None, "input_file_id")]


async def test_a_file_deleted_afterwards_leaves_its_batch_alone(make: Factory) -> None:
    batch = await make.running(lines(2))
    assert batch.input_file_id is not None
    await delete(make.store, make.owner, f"file-{batch.input_file_id.hex}")
    await make.answer_all(batch)
    assert (await make.sealed(batch)).status is Status.COMPLETED


@pytest.mark.parametrize("how", ["state = 'deleted'", "expires_at = now()"])
async def test_a_file_that_goes_away_in_the_middle_is_told(
    make: Factory, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    batch = await make.batch(lines(3_000))

    async def add(self: Ingest, block: Block, model: str) -> None:
        await make.run(f"UPDATE file SET {how}")
        await original(self, block, model)

    original = Ingest.add
    monkeypatch.setattr(Ingest, "add", add)
    monkeypatch.setattr(ingest, "GROUP_BLOCKS", 1)
    await Validate(make.deps).round()
    seen = await make.look(batch)
    assert (seen.status, seen.error and seen.error[0]) == (Status.FAILED, "file_not_found")
    assert await make.value("SELECT count(*) FROM block") == 0


async def test_while_no_model_is_served_batches_wait_and_the_hopeless_do_not(make: Factory) -> None:
    await serve(make.store, make.life.no, [])
    batch, bad = await make.batch(), await make.batch(b"nonsense")
    assert await Validate(make.deps).round() is True
    assert await Validate(make.deps).round() is False
    assert (await make.look(batch)).status is Status.VALIDATING
    assert (await make.look(bad)).status is Status.FAILED

    await make.close_window(batch)
    assert await Validate(make.deps).round() is True
    seen = await make.look(batch)
    assert (seen.status, seen.error and seen.error[0]) == (Status.FAILED, "model_not_found")


async def test_a_batch_that_cannot_be_checked_holds_up_no_other(make: Factory) -> None:
    broken = await make.batch()
    await make.run("UPDATE file_chunk SET data = 'nothing that was ever compressed'")
    good = await make.batch()
    rounds = Validate(make.deps)
    with pytest.raises(Exception, match=r"(?i)zstd|frame"):
        await rounds.round()
    assert await rounds.round() is True
    assert await rounds.round() is False
    assert (await make.look(good)).status is Status.IN_PROGRESS
    assert (await make.look(broken)).status is Status.VALIDATING


async def test_a_check_that_lost_the_database_comes_again_at_once(
    make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = await make.batch()
    rounds = Validate(make.deps)

    async def start(self: Ingest, model: str, total: int) -> None:
        raise ConnectionResetError

    with monkeypatch.context() as without:
        without.setattr(Ingest, "start", start)
        with pytest.raises(ConnectionResetError):
            await rounds.round()
    assert await rounds.round() is True
    assert (await make.look(batch)).status is Status.IN_PROGRESS


async def test_only_the_one_batch_is_checked_where_one_is_named(make: Factory) -> None:
    first, second = await make.batch(), await make.batch()
    deps = dataclasses.replace(make.deps, only=lambda: [second.no])
    assert await Validate(deps).round() is True
    assert await Validate(deps).round() is False
    assert (await make.look(first)).status is Status.VALIDATING
    assert (await make.look(second)).status is Status.IN_PROGRESS


async def test_a_batch_that_another_worker_checks_is_left_to_it(make: Factory) -> None:
    other = await make.worker()
    batch = await make.batch()
    row = await batches.claim_validating(make.store, other.no, None, may_read=True)
    assert row is not None
    assert await Validate(make.deps).round() is False
    await make.run("UPDATE worker SET dead_at = now() WHERE no = $1", other.no)
    await make.run("UPDATE batch SET validator = NULL")
    assert await Validate(make.deps).round() is True
    assert (await make.look(batch)).status is Status.IN_PROGRESS


async def test_two_workers_that_look_at_once_check_each_batch_once(make: Factory) -> None:
    made = [await make.batch() for _ in range(6)]
    others = [await make.worker() for _ in range(3)]
    deps = [make.deps, *(dataclasses.replace(make.deps, life=life) for life in others)]

    async def work(rounds: Validate) -> int:
        done = 0
        while await rounds.round():
            done += 1
        return done

    assert sum(await asyncio.gather(*(work(Validate(each)) for each in deps))) == 6
    for batch in made:
        assert len(await stored(make, batch)) == 3


async def test_a_worker_declared_dead_can_add_no_block(make: Factory) -> None:
    batch = await make.batch()
    dead = await make.worker()
    await batches.claim_validating(make.store, dead.no, None, may_read=True)
    block = Block()
    block.add(0, line("r0"), "r0")
    late = Ingest(make.store, dead.no, batch.no)
    await late.add(block, "m")
    await make.run("UPDATE worker SET dead_at = now() WHERE no = $1", dead.no)
    await make.run("UPDATE batch SET validator = NULL")
    assert await Validate(make.deps).round()

    with pytest.raises(Fenced):
        await late.start("m", 1)
    assert len(await stored(make, await make.look(batch))) == 3


async def test_a_cancel_ends_the_check_at_the_next_group(make: Factory, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = await make.batch(lines(BLOCK_LINES * 6))
    added = 0

    async def add(self: Ingest, block: Block, model: str) -> None:
        nonlocal added
        added += 1
        if added == 3:
            await cancel(make.store, make.owner, batch.public_id)
        await original(self, block, model)

    original = Ingest.add
    monkeypatch.setattr(Ingest, "add", add)
    monkeypatch.setattr(ingest, "GROUP_BLOCKS", 1)
    assert await Validate(make.deps).round() is True
    assert added == 3
    assert await make.value("SELECT count(*) FROM block") == 2

    ended = await make.sealed(batch)
    assert ended.status is Status.CANCELLED
    assert await make.value("SELECT count(*) FROM block") == 0
    assert await Validate(make.deps).round() is False


async def test_a_cancel_waits_for_a_group_under_way_and_no_block_follows_it(make: Factory) -> None:
    batch = await make.batch()
    await batches.claim_validating(make.store, make.life.no, None, may_read=True)
    writing = Ingest(make.store, make.life.no, batch.no)
    async with writing.held() as session:
        cancelling = asyncio.create_task(cancel(make.store, make.owner, batch.public_id))
        await make.lock_wait()
        await blocks.write(session, batch.no, "m", 0, [])
    await cancelling
    with pytest.raises(Lost):
        async with writing.held():
            pass


async def test_others_have_their_turn_after_each_piece_of_the_file(
    make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many pieces were fetched together."""
    read_since = longest = 0
    ticking = True

    def read(self: BatchCheck, number: int, text: bytes | None) -> Shape | None:
        nonlocal read_since, longest
        read_since += 1
        longest = max(longest, read_since)
        return original(self, number, text)

    async def tick() -> None:
        nonlocal read_since
        while ticking:
            read_since = 0
            await asyncio.sleep(0)

    original = BatchCheck.read
    monkeypatch.setattr(BatchCheck, "read", read)
    await make.batch(b"".join(line(f"r{i}", user="x" * 1_000) + b"\n" for i in range(1_500)))
    pieces = await make.value("SELECT count(*) FROM file_chunk")
    ticker = asyncio.create_task(tick())
    await Validate(make.deps).round()
    ticking = False
    await ticker
    assert pieces >= 12
    assert longest < 1.5 * 1_500 / pieces

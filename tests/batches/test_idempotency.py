"""One key, one batch: repeated calls find it, others are refused, refused ones use up nothing, keys are forgotten."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import asyncpg
import pytest

from overnight.batches import create as creating
from overnight.batches import idempotency
from overnight.batches.cancel import cancel
from overnight.batches.idempotency import Key, fingerprint, read_key
from overnight.batches.request import read_create
from overnight.batches.shape import BatchView
from overnight.domain.errors import BatchGone, InvalidParameter, KeyReused, RequestsRefused
from overnight.domain.states import Status
from overnight.store import batches
from overnight.store import idempotency as stored
from overnight.upkeep.purge import Purge
from tests.batches.factory import CHAT, Factory, lines
from tests.batches.test_direct import a_request


def body_of(*requests: Any, **given: Any) -> bytes:
    return json.dumps({"requests": requests or [a_request()], **given}).encode()


async def create(make: Factory, body: bytes, name: str = "key", owner: int | None = None) -> BatchView:
    """What the create call does with a key."""
    owner = owner or make.owner
    key = Key(name, await fingerprint(body), len(body))
    made = await idempotency.replay(make.store, owner, key)
    return made or await creating.create(make.store, make.limits, owner, read_create(body), key)


async def count(make: Factory) -> tuple[int, int]:
    """Batches and keys that are stored."""
    return (
        await make.value("SELECT count(*) FROM batch"),
        await make.value("SELECT count(*) FROM idempotency"),
    )


async def test_a_repeated_call_finds_the_batch_as_it_is_now(make: Factory) -> None:
    first = await create(make, body_of())
    await cancel(make.store, make.owner, first.public_id)
    again = await create(make, body_of())
    assert (again.id, again.status) == (first.id, Status.CANCELLING)
    assert await count(make) == (1, 1)


async def test_a_file_batch_is_found_again_although_its_file_is_in_use(make: Factory) -> None:
    file = await make.file(lines(2))
    body = json.dumps({"input_file_id": file.public_id, "endpoint": CHAT}).encode()
    first = await create(make, body)
    assert (await create(make, body)).id == first.id
    await make.run("UPDATE file SET state = 'deleted'")
    assert (await create(make, body)).id == first.id


async def test_another_request_under_the_key_is_refused(make: Factory) -> None:
    await create(make, body_of())
    for other in (body_of(a_request("b")), body_of(metadata={"a": "b"}), b"not JSON"):
        with pytest.raises(KeyReused) as raised:
            await create(make, other)
        assert (raised.value.status, raised.value.again) == (409, False)
    assert await count(make) == (1, 1)


async def test_a_key_belongs_to_its_owner(make: Factory) -> None:
    first = await create(make, body_of())
    other = await create(make, body_of(a_request("b")), owner=await make.stranger())
    assert other.id != first.id


async def test_the_key_of_a_deleted_batch_is_gone(make: Factory) -> None:
    batch = await create(make, body_of())
    await make.run("DELETE FROM batch WHERE no = $1", batch.no)
    for _ in range(2):
        with pytest.raises(BatchGone) as raised:
            await create(make, body_of())
        await Purge(make.deps).round()
    assert raised.value.status == 410
    with pytest.raises(KeyReused):
        await create(make, body_of(a_request("b")))


async def test_a_refused_create_uses_up_no_key(make: Factory) -> None:
    with pytest.raises(RequestsRefused):
        await create(make, body_of(a_request(model="gone")))
    assert await count(make) == (0, 0)
    assert await create(make, body_of(a_request("b")))


async def test_many_at_once_make_one_batch(make: Factory) -> None:
    came = await asyncio.gather(*(create(make, body_of()) for _ in range(5)))
    assert len({batch.id for batch in came}) == 1
    assert await count(make) == (1, 1)


@pytest.mark.parametrize("kept", [True, False])
async def test_a_create_waits_for_the_one_before_it_with_the_same_key(make: Factory, kept: bool) -> None:
    """Both orders of an early create that is still open: its batch is found if it commits, and not if it is undone."""
    body = body_of()
    early = await make.store.connect("early")
    transaction = early.connection.transaction()
    await transaction.start()
    await batches.serialise_creates(early)
    no = await early.connection.fetchval(
        "INSERT INTO batch (no, id, owner, target, endpoint, source, status, completion_window, retention)"
        " VALUES (next_batch_no(now()), gen_random_uuid(), $1, 'chat', $2, 'direct', 'validating', '1h', '1 day')"
        " RETURNING no",
        *(make.owner, CHAT),
    )
    await idempotency.remember(early, make.owner, Key("key", await fingerprint(body), len(body)), no)
    late = asyncio.create_task(create(make, body))
    await make.lock_wait()
    await (transaction.commit() if kept else transaction.rollback())
    await early.connection.close()
    assert ((await late).no == no) is kept
    assert await count(make) == (1, 1)


async def test_no_two_batches_can_be_stored_under_one_key(make: Factory) -> None:
    batch = await create(make, body_of())
    async with make.store.session() as session:
        with pytest.raises(asyncpg.UniqueViolationError):
            await stored.remember(session, owner=make.owner, key="key", request=b"", size=1, batch=batch.no)


async def purge(make: Factory) -> None:
    while await Purge(make.deps).round():
        pass


async def test_a_key_is_remembered_until_a_day_after_the_end_of_its_batch(make: Factory) -> None:
    batch = await create(make, body_of())
    ended = "UPDATE batch SET status = 'completed', ended_at = now() - $1::text::interval"
    await make.run("UPDATE batch SET created_at = now() - interval '9 days'")
    for ago, keys in ((None, 1), ("23 hours", 1), ("25 hours", 0)):
        if ago is not None:
            await make.run(ended, ago)
        await purge(make)
        assert await count(make) == (1, keys)
    assert (await create(make, body_of())).id != batch.id


async def test_the_key_of_a_deleted_batch_is_remembered_for_a_day(make: Factory) -> None:
    await create(make, body_of())
    await make.run("DELETE FROM batch")
    await purge(make)
    await make.run("UPDATE idempotency SET gone_at = gone_at - interval '23 hours'")
    await purge(make)
    assert await count(make) == (0, 1)
    await make.run("UPDATE idempotency SET gone_at = gone_at - interval '2 hours'")
    await purge(make)
    assert await count(make) == (0, 0)


async def test_keys_are_forgotten_in_bounded_rounds(make: Factory) -> None:
    await make.run(
        "INSERT INTO idempotency (owner, key, request, bytes) SELECT $1, i::text, '', 0 FROM generate_series(1, 250) i",
        make.owner,
    )
    assert await stored.purge_round(make.store) is True
    assert await make.value("SELECT count(gone_at) FROM idempotency") == stored.PURGED_AT_ONCE
    await purge(make)
    await make.run("UPDATE idempotency SET gone_at = now() - interval '2 days'")
    assert await stored.purge_round(make.store) is True
    assert await count(make) == (0, 250 - stored.PURGED_AT_ONCE)
    await purge(make)
    assert await count(make) == (0, 0)


SAME = [
    (b'{"a":1,"b":[2,{"c":null}]}', b' {"b" : [2, {"c":null}],\n"a":1} '),
    (b'{"requests":[{"a":1,"b":2},5]}', b'{ "requests" : [ {"b":2,"a":1} , 5 ] }'),
    (b'{"a":"\\u00e9A"}', '{"\\u0061":"é\\u0041"}'.encode()),
]
DIFFERENT = [
    b'{"a":1}', b'{"a":"1"}', b'{"a":1.0}', b'{"a":1.00}', b'{"a":1e0}', b'{"a":1E0}', b'{"a":-0}', b'{"a":0}',
    b'{"a":[1]}', b'{"a":[[1]]}', b'{"a":[]}', b'{"a":[1,2]}', b'{"a":[2,1]}', b'{"a":null}', b'{"a":{}}', b"{}",
    b'{"a":"x","b":"y"}', b'{"a":"y","b":"x"}', b'{"requests":[[1],2]}', b'{"requests":[1,[2]]}', b'{"requests":[]}',
    b'{"requests":[12]}', b'{"requests":[1,2]}', b'{"requests":"[1,2]"}', b'{"a":12345678901234567890123}',
    b'{"a":12345678901234567890124}', b'{"a":"\\u00e9"}', b'{"a":"e\\u0301"}', b'{"a":true}', b'{"a":"true"}',
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), SAME)
async def test_white_space_escapes_and_the_order_of_keys_make_no_difference(one: bytes, other: bytes) -> None:
    assert await fingerprint(one) == await fingerprint(other) != b""


async def test_whatever_else_differs_makes_a_difference() -> None:
    assert len({await fingerprint(body) for body in DIFFERENT}) == len(DIFFERENT)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"a":"\xff"}', b'{"a":' + b"[" * 100_000, b'{"requests":[NaN]}'])
async def test_what_cannot_be_read_is_like_nothing_that_was_made(body: bytes) -> None:
    assert await fingerprint(body) == b""


@pytest.mark.parametrize("name", ["a", "!~", "x" * 255, '{"odd":"but visible"}'.replace(" ", "-")])
def test_a_key_is_visible_ascii(name: str) -> None:
    assert read_key([name]) == name


@pytest.mark.parametrize("given", [[""], ["x" * 256], ["a b"], ["é"], ["a\x7f"], ["a\t"], ["a", "a"]])
def test_another_key_is_refused(given: list[str]) -> None:
    with pytest.raises(InvalidParameter) as raised:
        read_key(given)
    assert raised.value.param == "Idempotency-Key"
    assert read_key([]) is None

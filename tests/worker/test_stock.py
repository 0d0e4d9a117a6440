"""Who is taken to wait while more of its requests is leased, and where more is looked for."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from overnight.catalog.load import Load
from overnight.domain.limits import Limits
from overnight.store.leases import LeasedBatch, LeasedBlock, Pace, Wanted
from overnight.store.life import Life
from overnight.store.pool import Store
from overnight.worker.attempt import SHORT_FOR, Attempts
from overnight.worker.flow import Batch, Flow, Source
from overnight.worker.grants import Grants
from overnight.worker.held import Held
from overnight.worker.record import Recorder
from overnight.worker.stock import PASSED_OVER_FOR, Places, Stock, note_more
from tests.worker.routes import Switch

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def leased(owner: int, no: int) -> LeasedBatch:
    return LeasedBatch(no, UUID(int=no), owner, "/v1/chat/completions", {}, None, NOW.replace(hour=no), Pace(9, 0, 0.0))


def block(owner: int, no: int = 1) -> LeasedBlock:
    return LeasedBlock(leased(owner, no), 0, "m", False, [0], [b"{}"])


def source(flow: Flow, owner: int, untaken: int, no: int = 1) -> Source:
    found = flow.sources[no] = Source(Batch(leased(owner, no), None, 0.0), flow)
    found.untaken = untaken
    return found


def wanted(*, most: int = 4, fed: tuple[int, ...] = (), in_order: bool = True) -> Wanted:
    return Wanted(None, (), most=most, of_each=2, of_owner=2, fed=fed, in_order=in_order)


def test_who_gave_all_that_was_asked_for_may_have_more() -> None:
    more = {1, 3}
    note_more(more, wanted(), [block(2), block(2), block(1)])
    assert more == {2}


def test_who_was_not_asked_or_not_reached_is_not_known_to_have_none() -> None:
    more = {1, 3}
    note_more(more, wanted(fed=(3,)), [])
    assert more == {3}
    note_more(more, wanted(most=2), [block(2), block(2)])
    assert more == {2, 3}
    note_more(more, wanted(in_order=False), [])
    assert more == {2, 3}


def test_an_owner_of_whom_all_was_taken_while_more_is_ready_has_not_left_for_a_second() -> None:
    held = Held(1)
    flow = Flow(Switch("x"), "m", 0.0)
    life = Life(Store("postgresql://unused"))
    recorder = Recorder(held, lambda: None, lambda _: None)
    attempts = Attempts(held, Limits(), Grants(held, Limits(), life, Load()), recorder)
    both = [source(flow, 1, 5, 1), source(flow, 2, 5, 2)]
    attempts._see(flow, both, 0.0)
    flow.shares.charge(1, 100)
    attempts._see(flow, both[:1], 1.0)
    assert flow.shares.waiting == {1}
    attempts._see(flow, both, 2.0)
    assert flow.shares.account(2).served == 100
    flow.shares.charge(1, 100)
    held.more["engine"] = {2}
    attempts._see(flow, both[:1], 3.0)
    assert flow.shares.waiting == {1, 2}
    attempts._see(flow, both, 3.5)
    assert flow.shares.account(2).served == 100
    attempts._see(flow, both[:1], 4.0)
    attempts._see(flow, both[:1], 4.0 + SHORT_FOR)
    assert flow.shares.waiting == {1}


def test_enough_is_held_of_those_who_have_their_share() -> None:
    flow = Flow(Switch("x"), "m", 0.0)
    source(flow, 1, 300, 1)
    source(flow, 2, 3, 2)
    flow.rate.value = 400
    flow.shares.see({1, 2, 3})
    stock = Stock([flow])
    assert (stock.owners, stock.batches, stock.well_fed) == ({1: 300, 2: 3, 3: 0}, 2, {1})


def test_a_look_goes_on_where_the_first_ready_block_was_and_from_the_start_after_a_second() -> None:
    places = Places()
    assert places.of("r", 10.0) == {}
    places.remember("r", [block(1, 3), block(1, 2), block(2, 4)])
    assert places.of("r", 10.5) == {1: (NOW.replace(hour=2), 2), 2: (NOW.replace(hour=4), 4)}
    assert places.of("other", 10.5) == {}
    assert places.of("r", 10.0 + PASSED_OVER_FOR) == {}

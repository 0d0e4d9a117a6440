"""Lanes and turns together: two owners on one server that caches prompts by slot, without a database or a clock."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

from overnight.domain.fairness import Shares
from overnight.domain.lanes import Groups, Lanes
from overnight.worker.pick import Turns
from overnight.worker.room import lines_to_write

SLOTS = 4


@dataclass(eq=False)
class Placed:
    prefix: int
    owner: int
    lane: int = 0


class Waiting:
    """The requests of one owner, as `LanedSource` keeps them."""

    latest_start = 0.0

    def __init__(self, owner: int, prompts: list[int]) -> None:
        self.owner, self.untaken, self.last_turn = owner, len(prompts), -1
        self.groups: Groups[Placed] = Groups()
        for prompt in prompts:
            self.groups.add(Placed(prompt, owner))

    def take(self, lanes: Lanes) -> Placed:
        self.untaken -= 1
        return self.groups.take(lanes)


class Server:
    """Runs what it is given on the slot whose cache fits best, and ends requests at random."""

    def __init__(self) -> None:
        self.chance = random.Random(1)
        self.running: list[Placed] = []
        self.slots: list[Placed | None] = [None] * SLOTS
        self.prompts: list[int | None] = [None] * SLOTS
        self.computed = 0

    def start(self, request: Placed) -> None:
        free = [number for number, on_it in enumerate(self.slots) if on_it is None]
        slot = next((number for number in free if self.prompts[number] == request.prefix), free[0])
        self.computed += self.prompts[slot] != request.prefix
        self.slots[slot], self.prompts[slot] = request, request.prefix
        self.running.append(request)

    def end_one(self) -> Placed:
        request = self.running.pop(self.chance.randrange(len(self.running)))
        self.slots[self.slots.index(request)] = None
        return request


def play(waiting: list[Waiting], answers: int) -> tuple[list[int], Server]:
    """Until so many answers: whose each was; no slot is ever idle."""
    lanes, shares, server, reserve = Lanes(), Shares(), Server(), list[Placed]()
    ended: list[int] = []
    while len(ended) < answers:
        lacking = lines_to_write(SLOTS, len(server.running), len(reserve), 2.0, 0.005, SLOTS)
        lanes.see(SLOTS, [*server.running, *reserve])
        shares.see({one.owner for one in waiting if one.untaken})
        turns = Turns(shares, [one for one in waiting if one.untaken])
        for _ in range(lacking):
            if (one := turns.next()) is not None:
                reserve.append(one.take(lanes))
                turns.charge(100)
        while len(server.running) < SLOTS and reserve:
            server.start(reserve.pop(lanes.first_to_start(reserve, server.running)))
        assert len(server.running) == SLOTS
        ended.append(server.end_one().owner)
    return ended, server


def test_an_owner_whose_requests_share_one_prompt_is_served_as_many_tokens_as_one_with_many() -> None:
    ended, _ = play([Waiting(1, [0] * 400), Waiting(2, [1 + n // 16 for n in range(400)])], 400)
    drift = [2 * ended[:n].count(1) - n for n in range(len(ended))]
    # What runs and what is written down is chosen, but not answered.
    assert max(map(abs, drift)) <= 2 * SLOTS + lines_to_write(SLOTS, 0, 0, 2.0, 0.005, SLOTS)


def test_owners_of_one_prompt_each_share_the_lanes_and_seldom_take_one_from_the_other() -> None:
    ended, server = play([Waiting(1, [1] * 400), Waiting(2, [2] * 400)], 400)
    assert abs(Counter(ended)[1] - 200) <= 2 * SLOTS
    # Lanes don't end requests as evenly as turns are given, so some change hands: one request of twenty or so.
    assert server.computed <= 28

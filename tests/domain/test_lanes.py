"""Requests that share a prompt follow each other on one lane."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from overnight.domain.lanes import Group, Groups, Lane, Lanes, next_on_lane

groups = st.none() | st.integers(0, 5)


@dataclass(eq=False)
class Waiting:
    prefix: Group
    lane: int = 0


def waiting(*of: Group) -> Groups[Waiting]:
    found: Groups[Waiting] = Groups()
    for group in of:
        found.add(Waiting(group))
    return found


def test_a_lane_goes_on_with_its_own_group() -> None:
    assert next_on_lane([Lane(1, load=1), Lane(2)], {1: "aaaa", 2: "a", 3: "aaa"}) == (1, 2)


def test_a_lane_whose_group_has_ended_takes_one_that_nobody_serves() -> None:
    assert next_on_lane([Lane(1, load=1), Lane(2)], {1: "aaaa", 3: "a", 4: "aaa"}) == (1, 3)


def test_a_lane_joins_the_group_with_the_most_left_only_where_all_are_served() -> None:
    lanes = [Lane(1, load=1), Lane(2, load=1), Lane(3)]

    assert next_on_lane(lanes, {1: "aa", 2: "aaa"}) == (2, 2)
    assert next_on_lane(lanes, {1: "aa", 2: "aaa", 4: "a"}) == (2, 4)


def test_the_lane_with_the_least_to_do_comes_first_whatever_its_group() -> None:
    assert next_on_lane([Lane(1, load=2), Lane(2, load=1)], {1: "a", 3: "a"}) == (1, 3)
    assert next_on_lane([Lane(1, load=1), Lane(2, load=1)], {2: "a", 1: "a"}) == (0, 1)


def test_a_lane_that_has_something_to_do_joins_no_other() -> None:
    lanes = [Lane(1, load=2), Lane(2, load=1), Lane(1, load=3)]

    assert next_on_lane(lanes, {1: "aaaa"}) == (0, 1)


def test_what_is_left_over_for_a_free_slot_comes_from_the_lane_with_the_most_to_do() -> None:
    lanes = Lanes()
    lanes.see(3, ())
    written = [Waiting(1, lane=0), Waiting(2, lane=1), Waiting(2, lane=1)]

    assert lanes.first_to_start(written, [Waiting(1, lane=0), Waiting(2, lane=1)]) == 1
    assert written[1].lane == 2


def test_requests_of_no_group_go_to_any_lane_before_another_is_joined() -> None:
    assert next_on_lane([Lane(1, load=1), Lane(None)], {1: "aaa", None: "a"}) == (1, None)
    assert next_on_lane([Lane(None, load=1), Lane(None)], {None: "a"}) == (1, None)


def test_a_slot_that_is_free_starts_what_is_written_down_for_it() -> None:
    lanes = Lanes()
    lanes.see(2, ())
    first, second = Waiting(1, lane=0), Waiting(2, lane=1)

    assert lanes.first_to_start([first, second], [Waiting(1, lane=0)]) == 1
    assert lanes.first_to_start([first, second], [Waiting(2, lane=1)]) == 0
    assert lanes.first_to_start([first, second], []) == 0


def test_a_slot_for_which_nothing_is_written_down_takes_a_group_that_does_not_run() -> None:
    lanes = Lanes()
    lanes.see(3, ())
    written = [Waiting(1, lane=0), Waiting(3, lane=0), Waiting(None, lane=1)]

    assert lanes.first_to_start(written, [Waiting(1, lane=0), Waiting(2, lane=1)]) == 1
    assert written[1].lane == 2


def test_no_slot_stays_idle_for_the_sake_of_a_cache() -> None:
    lanes = Lanes()
    lanes.see(2, ())
    written = [Waiting(1, lane=0)]

    assert lanes.first_to_start(written, [Waiting(1, lane=0)]) == 0
    assert written[0].lane == 1


@given(st.lists(groups, max_size=40), st.integers(1, 5))
def test_every_request_is_taken_once_and_those_of_a_group_in_their_order(of: list[Group], slots: int) -> None:
    left, lanes = waiting(*of), Lanes()
    before = list(left)
    lanes.see(slots, ())

    taken = [left.take(lanes) for _ in of]

    assert Counter(map(id, taken)) == Counter(map(id, before))
    assert list(left) == []
    for group in set(of):
        assert [r for r in taken if r.prefix == group] == [r for r in before if r.prefix == group]


def _run(left: Groups[Waiting], count: int, slots: int, chance: random.Random) -> tuple[list[set[Group]], int]:
    """Run all requests with one a lane written down; returns what each slot computed, and starts on a served group."""
    lanes = Lanes()
    reserve: list[Waiting] = []
    running: list[Waiting] = []
    seen: list[list[Group]] = [[] for _ in range(slots)]
    joined = 0
    for _ in range(2 * count):
        lanes.see(slots, [*running, *reserve])
        while len(running) + len(reserve) < 2 * slots and any(True for _ in left):
            reserve.append(left.take(lanes))
        while len(running) < slots and reserve:
            request = reserve.pop(lanes.first_to_start(reserve, running))
            waits = {r.prefix for r in left} - {r.prefix for r in (*reserve, *running)}
            joined += request.prefix in {r.prefix for r in running} and bool(waits)
            if seen[request.lane][-1:] != [request.prefix]:
                seen[request.lane].append(request.prefix)
            running.append(request)
        if running:
            running.pop(chance.randrange(len(running)))
    assert not running
    return [set(of_slot) for of_slot in seen], joined


@given(st.integers(1, 5), st.integers(1, 12), st.integers(1, 6), st.randoms(use_true_random=False))
def test_a_prompt_is_computed_once_as_long_as_there_is_one_for_each_lane(
    slots: int, prompts: int, each: int, chance: random.Random
) -> None:
    of = [group for group in range(prompts) for _ in range(each)]
    chance.shuffle(of)

    seen, joined = _run(waiting(*of), len(of), slots, chance)

    assert set().union(*seen) == set(range(prompts))
    # Only the last groups are shared out, when there are fewer of them than lanes.
    assert sum(map(len, seen)) <= prompts + slots * (slots - 1)
    assert joined == 0

"""Which request is next where a server keeps a cache of prompts for each slot: one group of requests on a lane.

Such a server computes a prompt again on every slot that gets it, so requests that share one should follow each other
on the same slot. A lane stands for such a slot: the server puts a request on the free slot whose cache fits best.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from typing import Generic, Protocol, TypeAlias, TypeVar

Group: TypeAlias = int | None
"""What requests have in common whose prompts begin alike; None for one that begins like no other."""


class Lane:
    """A slot with a cache of its own."""

    __slots__ = ("group", "load")

    def __init__(self, group: Group = None, load: int = 0) -> None:
        self.group = group
        """The group of the request that it was given last."""
        self.load = load
        """Requests that run on it or are written down for it."""


def next_on_lane(lanes: Sequence[Lane], waiting: Mapping[Group, Sized]) -> tuple[int, Group]:
    """Which lane is given a request next, and of which group; something waits.

    It is the lane with the least to do. It goes on with its own group; if that has nothing left, it takes the first
    that no lane serves; only if there is none, and it has nothing to do, it joins the group that has the most left.
    As long as it has something to do, that group's own lane is given the request: it may never be needed elsewhere.
    """
    least = min([lane.load for lane in lanes])
    free = [index for index, lane in enumerate(lanes) if lane.load == least]
    for index in free:
        group = lanes[index].group
        if group is not None and group in waiting:
            return index, group
    served = {lane.group for lane in lanes}
    for group in waiting:
        if group is None or group not in served:
            return free[0], group
    most = max(waiting, key=lambda group: len(waiting[group]))
    if least == 0:
        return free[0], most
    own = [index for index, lane in enumerate(lanes) if lane.group == most]
    return min(own, key=lambda index: lanes[index].load), most


class Placed(Protocol):
    """A request that is put on a lane."""

    lane: int

    @property
    def prefix(self) -> Group:
        """Its group."""


class Lanes:
    """The lanes of one server."""

    def __init__(self) -> None:
        self._lanes: list[Lane] = []

    def see(self, slots: int, placed: Iterable[Placed]) -> None:
        """The server has so many slots, and `placed` are all requests that run or are written down."""
        self._lanes = self._lanes[:slots] + [Lane() for _ in range(slots - len(self._lanes))]
        for lane in self._lanes:
            lane.load = 0
        for request in placed:
            if request.lane < slots:
                self._lanes[request.lane].load += 1

    def next(self, waiting: Mapping[Group, Sized]) -> tuple[int, Group]:
        """As `next_on_lane`."""
        return next_on_lane(self._lanes, waiting)

    def put(self, request: Placed, lane: int) -> None:
        """The lane is given the request."""
        request.lane = lane
        self._lanes[lane].group = request.prefix
        self._lanes[lane].load += 1

    def place(self, request: Placed) -> None:
        """Find a lane for a request that comes next, whatever its group."""
        self.put(request, self.next({request.prefix: (request,)})[0])

    def first_to_start(self, written: Sequence[Placed], running: Sequence[Placed]) -> int:
        """Which of the requests that are written down starts in a slot that is free: its place among them.

        The first whose lane is free; so none waits longer than for what its own lane has to do. If there is none, the
        first whose group does not run, else the first on the lane that has the most to do; a free lane is given it.
        """
        busy = {request.lane for request in running}
        for index, request in enumerate(written):
            if request.lane not in busy:
                return index
        groups = {request.prefix for request in running if request.prefix is not None}
        index = next((index for index, request in enumerate(written) if request.prefix not in groups), -1)
        if index < 0:
            ahead = Counter(request.lane for request in written)
            index = max(range(len(written)), key=lambda index: (ahead[written[index].lane], -index))
        free = next((lane for lane in range(len(self._lanes)) if lane not in busy), None)
        if free is not None:
            self.put(written[index], free)
        return index


P = TypeVar("P", bound=Placed)


class Groups(Generic[P]):
    """Requests that wait, by their groups, in the order in which the groups came."""

    def __init__(self) -> None:
        self._waiting: dict[Group, deque[P]] = {}

    def __iter__(self) -> Iterator[P]:
        for of_group in self._waiting.values():
            yield from of_group

    def add(self, request: P) -> None:
        """It is the last of its group."""
        self._waiting.setdefault(request.prefix, deque()).append(request)

    def take(self, lanes: Lanes) -> P:
        """The request that comes next; it has its lane then."""
        lane, group = lanes.next(self._waiting)
        of_group = self._waiting[group]
        request = of_group.popleft()
        if not of_group:
            del self._waiting[group]
        lanes.put(request, lane)
        return request

    def clear(self) -> None:
        """Forget them."""
        self._waiting.clear()

"""Requests for a server that caches prompts by slot: which of them is next depends on what its slots have computed."""

from __future__ import annotations

from collections.abc import Iterator

from overnight.domain.lanes import Groups, Lanes
from overnight.domain.last_part import longest_first, longest_output
from overnight.domain.prefix import group_of, read_shape
from overnight.worker.flow import Batch, Flow, Source
from overnight.worker.request import Block, Request


class LanedSource(Source):
    """The held requests of one batch, by the groups that share the beginning of their prompts."""

    __slots__ = ("groups", "lanes")

    def __init__(self, batch: Batch, flow: Flow, lanes: Lanes) -> None:
        super().__init__(batch, flow)
        self.lanes = lanes
        self.groups: Groups[Request] = Groups()

    def take(self, *, untried_first: bool = False) -> Request:
        is_again = bool(self.again)
        request = super().take(untried_first=untried_first)
        if is_again:
            _find_group(request)
            self.lanes.place(request)
        return request

    def hold(self, block: Block) -> None:
        for request in block.requests:
            _find_group(request)
            self.groups.add(request)
        block.requests = []

    def _take_untried(self) -> Request:
        return self.groups.take(self.lanes)

    def _untried(self) -> Iterator[Request]:
        return iter(self.groups)

    def drop_untried(self) -> list[Request]:
        dropped = list(self.groups)
        self.groups.clear()
        return dropped


def sort(source: Source) -> None:
    """Let the longest of what is left start first; among equals, and within a group, the order stays."""
    left = source.drop_untried()
    outputs = [longest_output(r.text, source.batch.url, source.batch.defaults) for r in left]
    source.hold_in_order(longest_first(left, outputs))
    source.is_sorted = True


def survey(flow: Flow) -> None:
    """See what each lane has to do, before requests are put on them."""
    if flow.lanes is not None:
        flow.lanes.see(flow.route.slot_caches or 1, [*_running(flow), *flow.reserve])


def bring_forward(flow: Flow, taken: list[Request]) -> None:
    """Put the request that is to start next, beside those `taken` before, at the head of the reserve."""
    if flow.lanes is not None:
        index = flow.lanes.first_to_start(flow.reserve, [*_running(flow), *taken])
        request = flow.reserve[index]
        del flow.reserve[index]
        flow.reserve.appendleft(request)


def _running(flow: Flow) -> list[Request]:
    return [call.what for call in flow.running if type(call.what) is Request]


def _find_group(request: Request) -> None:
    if request.prefix is None:
        request.prefix = group_of(read_shape(request.text))

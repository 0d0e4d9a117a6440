"""Who is served next: owners by tokens, and of one owner the batch with the least time to spare.

**Between owners** stands a virtual token counter for each (VTC; Sheng et al., "Fairness in Serving Large Language
Models", OSDI 2024). Whoever has the least on it, of those with requests that could start, is next. The counter is
charged when a request is chosen, with what it is thought to cost, and corrected when its usage is known (the paper's
variant with predicted lengths; without it an owner of long outputs would fill all slots before the first one ends). An
owner that comes, or comes back, is lifted to the least counter of those that wait: absence saves up nothing. As in
the paper a token that is written weighs twice one that is read, since it takes a pass of the model of its own.

**The bound.** Let U be the most that one request is charged when it is chosen, E the most that a charge is off, and
N the requests in flight. While two owners both have requests waiting, their counters differ by at most

    U + 2 x N x E

(divided by the lesser weight). For whoever is ahead had the least of all when it was chosen last, and went ahead by U
at the most. Since then it was not chosen, so it can only have been corrected upwards, and the others only downwards by
more than they were charged since, for requests that were in flight at that moment: N in all, each off by E at the most.
That is U + N x E where both have waited all the while. One that came later was lifted to no less than the least of the
others at that moment, and can fall below that by what it had in flight then: N x E once more.

So what two owners are served over any time in which both always wait differs by at most twice that; counted by requests
that have ended, by up to 2 x N x U more, for those that have not. The bound holds for one queue, that is one model on
one route of one process; over several queues it adds up.

**Between one owner's batches** stands slack: the time until the window closes less the time that what is left takes
at the batch's pace. The batch with the least is next, but one turn in AGING goes to the one that has waited longest
for a turn. So of B batches each has a turn within AGING x B turns of its owner.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from math import inf

OUTPUT_WEIGHT = 2
"""Tokens read that one token written counts for."""
BYTES_A_TOKEN = 4
"""Of a request's text, about; only until its usage is known."""
AGING = 8
"""One turn of an owner in so many goes to the batch that has waited longest."""

_REMEMBERED = 64
"""Answers of a batch after which an older one counts less and less for its expected output."""
_MOST_ABSENT = 1_024
"""Absent owners that are kept on the books before those are forgotten who would be lifted anyway."""


class Account:
    """How an owner stands in one queue."""

    __slots__ = ("served", "turns")

    def __init__(self, served: float) -> None:
        self.served = served
        """Tokens, weighted: the virtual token counter."""
        self.turns = 0
        """Requests chosen so far."""


class Shares:
    """The virtual token counters of one queue. An owner of weight 2 is served twice as much as one of weight 1."""

    def __init__(self, weights: Mapping[int, float] | None = None) -> None:
        """`weights` of owners; who is missing weighs 1."""
        self._weights = weights or {}
        self._accounts: dict[int, Account] = {}
        self._waiting: frozenset[int] = frozenset()
        self._level = 0.0
        """What whoever comes is lifted to at least."""

    def see(self, waiting: Set[int]) -> None:
        """These owners, and no others, have requests that could start now."""
        if waiting == self._waiting:
            return
        before = [self._accounts[owner].served for owner in self._waiting]
        stayed = [self._accounts[owner].served for owner in waiting & self._waiting]
        if before:
            # Where all who waited are gone: the paper takes the one that left last, and who that was is not known.
            # It never falls: else the counters of those who were away longer would stand out.
            self._level = max(self._level, min(stayed) if stayed else max(before))
        for owner in waiting - self._waiting:
            account = self._accounts.setdefault(owner, Account(self._level))
            account.served = max(account.served, self._level)
        self._waiting = frozenset(waiting)
        if len(self._accounts) > len(waiting) + _MOST_ABSENT:
            self._forget_lifted()

    @property
    def waiting(self) -> frozenset[int]:
        """Who was seen last."""
        return self._waiting

    def account(self, owner: int) -> Account:
        """The account of an owner that was seen waiting."""
        return self._accounts[owner]

    def charge(self, owner: int, tokens: float) -> float:
        """Add tokens to an owner's counter, or take back where they are negative; returns how it stands then."""
        account = self._accounts.get(owner)
        if account is None:
            # It was forgotten: when it comes back it is lifted, as everybody who was away.
            return self._level
        account.served += tokens / self._weights.get(owner, 1.0) if self._weights else tokens
        return account.served

    def _forget_lifted(self) -> None:
        absent = [(a.served, owner) for owner, a in self._accounts.items() if owner not in self._waiting]
        for served, owner in absent:
            if served <= self._level:
                del self._accounts[owner]


class ExpectedOutput:
    """How many tokens the next answer is likely to have, learnt from those before; at least 1.

    The mean, in which old answers fade. `tokens` is one object that all requests chosen meanwhile can share.
    """

    __slots__ = ("_mean", "_seen", "tokens")

    def __init__(self, like: ExpectedOutput | None = None) -> None:
        """`like` says what to expect before the first answer."""
        self.tokens: int = 1 if like is None else like.tokens
        self._mean = float(self.tokens)
        self._seen = 0

    def learn(self, output: int) -> None:
        """An answer had so many tokens."""
        if self._seen < _REMEMBERED:
            self._seen += 1
        self._mean += (output - self._mean) / self._seen
        self.tokens = int(self._mean) or 1


def estimate(request_bytes: int, expected_output: int) -> int:
    """What a request of so many bytes is thought to cost, in weighted tokens."""
    return request_bytes // BYTES_A_TOKEN + OUTPUT_WEIGHT * expected_output


def cost(input_tokens: int, output_tokens: int) -> int:
    """What a request did cost, in weighted tokens: at least 1, so that nobody runs requests for nothing."""
    return input_tokens + OUTPUT_WEIGHT * output_tokens or 1


def latest_start(closes: float, left: float, answered: int, seconds: float) -> float:
    """When a batch must go on at the latest to end in its window, at the pace it had. The batch with the least slack
    is the one for which this comes first.

    `closes` is when its window does, by a clock in seconds; so many of its requests are `left`, and so many were
    `answered` in the `seconds` since it started. Before the first answer nothing is known of its pace.
    """
    if not answered or not left:
        return closes
    return closes - left * seconds / answered


def will_close_first(seconds_left: float, left: float, answered: int, seconds: float) -> bool:
    """Whether a batch's window closes, in `seconds_left`, before it is done at the pace it had; others as of
    `latest_start`.

    A batch is given the first twentieth of its window to find its pace, and half of it to have any.
    """
    if not left or seconds_left == inf:
        return False
    window = seconds + seconds_left
    if not answered:
        return seconds >= window / 2
    return seconds >= window / 20 and latest_start(seconds_left, left, answered, seconds) < 0

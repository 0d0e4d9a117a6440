"""What it takes to start an engine's process, whichever engine it is.

A process started from a `Launch` keeps one contract: it reads one line of JSON from its standard input,
`{"api_key": …, "parent": …}`; when its model is loaded it writes one line of JSON to its standard output,
`{"url": …, "slots": …, "context_length": …}`, or `{"failed": "why"}`; and it ends when its input does.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from overnight.domain.concurrency.state import Bounds
from overnight.engine import sizing
from overnight.engine.count import Count, count_llama_cpp
from overnight.engine.flags import LLAMA_CPP_OWN, check_flags, flag_value
from overnight.engine.lacks import lacks_of_llama_cpp
from overnight.engine.memory import available_memory
from overnight.engine.model import ModelFile
from overnight.engine.pulse import Reading, read_llama_cpp

HOST_CACHE_MIB = 512
"""The engine's own default is 8 GiB."""
LLAMA_LINE = re.compile(r"\d+\.\d\d\.\d{3}\.\d{3} (?P<level>[A-Z]) (?:\w+ +)?[\w~ ]*: (?P<text>.*)")
LLAMA_ABORT = ("GGML_ASSERT", "GGML_ABORT", "terminate called")


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start an engine for one model, and how to read what it says."""

    model: ModelFile
    command: tuple[str, ...]
    slots: int
    """Requests that run at once; the most of them where the number is found while it runs."""
    context_length: int
    """Tokens of one request, prompt and answer together."""
    cause: Callable[[str], str | None]
    """The text of a line of the engine's log that tells why it failed; None for any other line."""
    safe: Callable[[str], bool]
    """Whether a line of the log, written while requests run, is free of what those requests contain."""
    lacks: frozenset[str] = frozenset()
    """What it cannot carry of a request's body, named as in `domain.bodies.carry`."""
    fatal: Callable[[str], str | None] = lambda _line: None
    """As `cause`, for a line that tells why a process died that had been serving."""
    pulse: Callable[[str], Reading | None] = lambda _metrics: None
    """What its `/metrics` say of its work; None where they say nothing."""
    grace: float = 5.0
    """Seconds that it needs to end in good order."""
    slots_share_cache: bool = False
    """What one slot has computed of a prompt serves all others, too."""
    room: Bounds | None = None
    """How many requests it bears depends on their lengths: the number is found between these."""
    count: Count | None = None
    """How it is asked for the length of a prompt; None: it cannot be."""
    notes: tuple[str, ...] = ()
    """What is less than was asked for or than the model could do, and why, a sentence each."""
    refuses_exactly: bool = False
    """A prompt too long for its context is refused before it is computed, with both numbers."""


def llama_cpp(
    model: ModelFile,
    *,
    slots: int | None = None,
    context_length: int | None = None,
    threads: int | None = None,
    cores: int | None = None,
    host_cache: int = HOST_CACHE_MIB,
    memory: int | None = None,
    args: Sequence[str] = (),
) -> Launch:
    """llama.cpp through the package xllamacpp; what is left out fits the machine and the model.

    `context_length` is tokens for one slot. `cores` stands in for the cores of this machine, and `memory` (bytes) for
    what it could still give.
    `host_cache` is MiB of prompts that are kept when their slot is given to another one. `args` are flags of
    llama.cpp. EngineError for one that is not to be passed.
    """
    check_flags("llama.cpp", args, LLAMA_CPP_OWN)
    cores = cores or sizing.available_cores()
    size, notes = _size(model, slots, context_length, cores, memory)
    # With -P a file in the current folder cannot take the place of a module.
    command = [sys.executable, "-P", "-m", "overnight.engine.llama_server", "--model", str(model.path)]
    command += ["--name", model.id, "--host-cache", str(host_cache)]
    command += ["--slots", str(size.slots), "--context", str(size.context)]
    command += ["--threads", str(threads or sizing.default_threads(cores))]
    if model.embedding:
        command += ["--embedding"]
        command += [] if model.pooling else ["--pool-mean"]
    command += [f"--engine-arg={one}" for one in args]
    return Launch(
        model=model,
        command=tuple(command),
        slots=size.slots,
        context_length=size.context,
        cause=_llama_cause,
        fatal=_llama_fatal,
        safe=_llama_safe,
        lacks=lacks_of_llama_cpp(flag_value(args, "chat-template") or model.template),
        pulse=read_llama_cpp,
        count=count_llama_cpp,
        notes=notes,
        refuses_exactly=True,
    )


def _size(
    model: ModelFile, slots: int | None, context: int | None, cores: int, memory: int | None
) -> tuple[sizing.Size, tuple[str, ...]]:
    memory = available_memory() if memory is None else memory
    # Beyond what the model was trained for the engine would take the memory and not use it.
    own = model.context_length or context or sizing.SHORT_CONTEXT
    wanted = sizing.Size(slots or sizing.default_slots(cores), min(context or own, own))
    size = sizing.fit(model.cost, wanted, memory, fix_slots=slots is not None, fix_context=context is not None)
    notes = beyond_own(model, context)
    if size != wanted:
        had = "an unknown size" if memory is None else f"{memory / (1 << 20):,.0f} MiB"
        notes += (
            f"{wanted.slots} slots of {wanted.context:,} tokens do not fit into free memory of {had}: it gets"
            f" {size.slots} of {size.context:,}. --max-context-length and --engine-slots say otherwise.",
        )
    return size, notes


def beyond_own(model: ModelFile, context: int | None) -> tuple[str, ...]:
    """What is to be told of a context that was asked for."""
    own = model.context_length
    if context is None or own is None or context <= own:
        return ()
    return (f"--max-context-length asks for {context:,} tokens; the model was made for {own:,} and gets these.",)


def _llama_cause(line: str) -> str | None:
    """The first line at level E tells the cause; those after it only say what could not go on."""
    if any(mark in line for mark in LLAMA_ABORT):
        return line.strip()
    match = LLAMA_LINE.match(line)
    if match is None or match["level"] != "E":
        return None
    return match["text"].removeprefix("error loading model: ").strip()


def _llama_fatal(line: str) -> str | None:
    """Where llama.cpp gives up by itself it says so in a line of its own form."""
    return line.strip() if any(mark in line for mark in LLAMA_ABORT) else None


def _llama_safe(line: str) -> bool:
    """llama.cpp prints a grammar that it cannot parse, and quotes a body in its warnings: neither is kept."""
    return _llama_cause(line) is not None

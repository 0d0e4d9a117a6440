"""How vLLM is started, and how its log is read. It is a program of its own and never imported."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from overnight.domain.concurrency.state import MOST, Bounds
from overnight.engine.count import count_vllm
from overnight.engine.errors import EngineError
from overnight.engine.flags import VLLM_OWN, check_flags, flag_name, flag_value
from overnight.engine.lacks import VLLM
from overnight.engine.launch import Launch, beyond_own
from overnight.engine.model import ModelFile
from overnight.engine.pulse import read_vllm

SURE_SEQUENCES = 256
"""What it runs at once by itself on most GPUs; given more than it can run, it lets the others wait and says so."""
GRACE = 20.0
"""Seconds to let go of the GPUs in good order."""
HOW_TO_INSTALL = (
    "The engine vLLM is not installed. Run: pip install 'overnight[vllm]', or install vLLM in an environment of its own"
    " and name its command with --vllm. Without it, name a GGUF file: that runs on llama.cpp."
)

_SOURCE = re.compile(r"^(?:\([^)]*\) )?(?:(?P<level>[A-Z]+) [\d-]+ [\d:]+ \[(?P<file>[\w./-]+):\d+\] )?(?P<text>.*)$")
_EXCEPTION = re.compile(r"^[\w.]*(?:Error|Exception|Interrupt)\b: *(?P<text>.+)$")
_REFUSED = re.compile(r"^vllm(?: serve)?: error: (?P<text>.+)$")
_INVALID = re.compile(r"^  (?:Value error, )?(?P<text>.+?) \[type=\w+,")
_SAYS_LITTLE = ("Engine core initialization failed", "validation error for", "WorkerProc initialization failed")
_FATAL = re.compile(r"^(?:[\w.]*OutOfMemoryError: (?P<memory>.+)|(?P<device>RuntimeError: (?:CUDA|NCCL) .+))$")
_ENDING = re.compile(
    r"^(?:EngineCore encountered a fatal error|Engine core proc \S+ died unexpectedly|AsyncLLM output_handler failed|"
    r"Traceback \(most recent call last\):|  File \"[^\"]+\", line \d+, in [\w<>.]+$|[\w.]*EngineDeadError: )"
)
_STATISTICS = "loggers.py"


def find_vllm(named: Path | None) -> str | None:
    """The command `vllm`: as named, beside the Python that runs us, or on PATH."""
    if named is not None:
        return shutil.which(str(named.expanduser()))
    return shutil.which(str(Path(sys.executable).with_name("vllm"))) or shutil.which("vllm")


def vllm(
    model: ModelFile,
    *,
    command: Path | None = None,
    slots: int | None = None,
    context_length: int | None = None,
    args: Sequence[str] = (),
) -> Launch:
    """`vllm serve`; what is left out is vLLM's own choice.

    `command` names its program, `args` are flags of its own. EngineError where it is missing, or for a flag that is
    not to be passed.
    """
    check_flags("vLLM", args, VLLM_OWN)
    program = find_vllm(command)
    if program is None:
        raise EngineError(HOW_TO_INSTALL if command is None else f"There is no vLLM at {command}.")
    own = ["--served-model-name", model.id, *_defaults(model, slots, context_length, args)]
    room = _room([*own, *args])
    return Launch(
        model=model,
        command=(
            *(sys.executable, "-P", "-m", "overnight.engine.vllm_server", "--slots", str(room.most), "--"),
            # Ours come last: of a flag that is given twice, it takes the last.
            *(program, "serve", str(model.path), *args, *own),
        ),
        slots=room.most,
        context_length=context_length or model.context_length or 0,
        cause=_cause,
        fatal=_fatal,
        safe=_safe,
        lacks=VLLM,
        pulse=read_vllm,
        grace=GRACE,
        slots_share_cache=True,
        room=room,
        count=count_vllm,
        notes=beyond_own(model, context_length),
    )


def _defaults(model: ModelFile, slots: int | None, context_length: int | None, args: Sequence[str]) -> list[str]:
    """Flags that Overnight sets where `args` do not."""
    given = {flag_name(arg) for arg in args}
    flags = []
    if slots is not None and "max-num-seqs" not in given:
        flags += ["--max-num-seqs", str(slots)]
    if context_length is not None and "max-model-len" not in given:
        # It refuses to go beyond what the model was made for.
        flags += ["--max-model-len", str(min(context_length, model.context_length or context_length))]
    if "override-generation-config" not in given:
        # What a request leaves out: the most likely word is taken, so that the same request has the same answer.
        flags += ["--generation-config", "vllm"] if "generation-config" not in given else []
        flags += ["--override-generation-config", '{"temperature": 0.0}']
    return flags


def _room(args: Sequence[str]) -> Bounds:
    """Requests at once, over all copies of the model where there are several.

    How many vLLM runs by default depends on its version and on the GPU, and how many fit into its cache on their
    lengths. So where nobody names a number, it is found from what vLLM says of its queue.
    """
    copies = _whole(flag_value(args, "data-parallel-size")) or 1
    each = _whole(flag_value(args, "max-num-seqs"))
    return Bounds((each or SURE_SEQUENCES) * copies, (each or MOST) * copies)


def _whole(value: str | None) -> int | None:
    return int(value) if value is not None and value.isdecimal() and int(value) > 0 else None


def _read(line: str) -> tuple[str | None, str | None, str]:
    """A line of vLLM's log: its level, the file of the source that it comes from, and what it says."""
    match = _SOURCE.match(line)
    return (match["level"], match["file"], match["text"]) if match else (None, None, line)


def _cause(line: str) -> str | None:
    """The first exception in its log is the cause; those after it say that something else failed."""
    level, _, text = _read(line)
    if level not in (None, "ERROR", "CRITICAL") or any(little in text for little in _SAYS_LITTLE):
        return None
    for pattern in (_EXCEPTION, _REFUSED, _INVALID):
        match = pattern.match(text)
        if match is not None:
            return match["text"].strip()
    return None


def _fatal(line: str) -> str | None:
    """The exceptions of an end that say something of the machine; others may quote what they were at."""
    _, _, text = _read(line)
    match = _FATAL.match(text)
    return (match["memory"] or match["device"]).strip() if match else None


def _safe(line: str) -> bool:
    """Its errors may quote a body or a prompt. Where it ended does not, and neither do its statistics."""
    _, file, text = _read(line)
    return file == _STATISTICS or _fatal(line) is not None or _ENDING.match(text) is not None

"""The engines that keep the same promises, each on a model of its own kind and with a way to start it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from overnight.engine.launch import Launch, llama_cpp
from overnight.engine.model import read_folder, read_model
from overnight.engine.names import Engine
from overnight.engine.vllm import vllm
from overnight.engine.watch import Pace
from tests.tiny_model import write_tiny_model
from tests.tiny_transformers import write_tiny_llama

CONTEXT = 256
REAL_VLLM = os.environ.get("OVERNIGHT_TEST_VLLM")
"""The command of a real vLLM to test with, instead of what stands in for it."""
ARGS_OF_REAL = ("--dtype=float32", "--enforce-eager", "--gpu-memory-utilization=0.3")
"""A model of half a megabyte needs no more; on processors the last is a share of the machine's memory."""


@dataclass(frozen=True, slots=True)
class Driver:
    """An engine and a model that it serves."""

    engine: Engine
    model: Path
    command: Path | None

    def launch(self, model: Path | None = None, args: Sequence[str] = ()) -> Launch:
        """How it is started, two requests at once, 256 tokens each."""
        path = model or self.model
        if self.engine is Engine.LLAMA_CPP:
            return llama_cpp(read_model(path), slots=2, context_length=CONTEXT, threads=1, args=args)
        more = ARGS_OF_REAL if REAL_VLLM else ()
        return vllm(read_folder(path), command=self.command, slots=2, context_length=CONTEXT, args=(*more, *args))

    def pace(self, *, patient: bool = True) -> Pace:
        """Looks often; without patience it also gives up soon."""
        wait = 10.0 if REAL_VLLM else 0.3
        return Pace(look_every=0.05, answer_within=30.0 if patient else wait, grace=30.0 if patient else 2.0)


def make_driver(engine: Engine, folder: Path) -> Driver:
    """An engine and its tiny model, in a folder."""
    if engine is Engine.LLAMA_CPP:
        return Driver(engine, write_tiny_model(folder / "tiny.gguf"), None)
    command = Path(REAL_VLLM) if REAL_VLLM else write_stand_in(folder)
    return Driver(engine, write_tiny_llama(folder / "tiny"), command)


def write_stand_in(folder: Path) -> Path:
    """A program called `vllm`."""
    program = folder / "vllm"
    script = Path(__file__).with_name("vllm_stand_in.py")
    # Without the packages of this environment it starts in a fraction of the time.
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -E "{script}" "$@"\n')
    program.chmod(0o755)
    return program

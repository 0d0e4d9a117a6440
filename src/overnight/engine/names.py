"""The engines that Overnight can start."""

from __future__ import annotations

from enum import StrEnum


class Engine(StrEnum):
    """An engine by its name on the command line."""

    LLAMA_CPP = "llama.cpp"
    VLLM = "vllm"

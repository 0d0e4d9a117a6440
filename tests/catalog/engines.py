"""Local engines without a process: their supervisor is tested where it lives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from overnight.engine.launch import Launch
from overnight.engine.model import ModelFile
from overnight.engine.supervise import EngineState, LocalEngine, Phase


def engine_of(
    embedding: bool = False, name: str = "tiny", slots: int = 4, context: int = 256, **more: Any
) -> LocalEngine:
    """An engine that is not started."""
    model = ModelFile(Path("/m.gguf"), name, (f"{name}.gguf",), 512, embedding, True)
    return LocalEngine(Launch(model, ("false",), slots, context, lambda _: None, lambda _: False, **more))


def pretend(engine: LocalEngine, phase: Phase, url: str | None, **more: Any) -> None:
    """Stand in for the process of an engine; `more` replaces what the engine says of itself."""
    engine.state = EngineState(phase)
    engine.__class__ = type("Pretended", (LocalEngine,), {"base_url": url, "api_key": "secret", **more})
    for hear in engine._listeners:
        hear(engine.state)

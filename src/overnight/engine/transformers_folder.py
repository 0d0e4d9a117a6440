"""What the folder of a Transformers model says about it, read from its small JSON files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from overnight.engine.errors import EngineError

WEIGHTS = (".safetensors", ".bin", ".pt")
LARGEST_CONFIG = 16 << 20
_LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "n_ctx")


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a model before it is loaded."""

    config: Mapping[str, Any]
    context_length: int | None
    embedding: bool
    chat_template: bool


def is_transformers(folder: Path) -> bool:
    """Whether it holds a configuration and weights."""
    return (folder / "config.json").is_file() and any(
        file.suffix in WEIGHTS for file in folder.iterdir() if not file.name.startswith(".")
    )


def read_facts(folder: Path) -> Facts:
    """Read `config.json` and what lies beside it. EngineError where that is not a model's."""
    config = read_json(folder / "config.json")
    # Models of several parts keep the numbers of the one that writes apart.
    text = config.get("text_config")
    lengths = cast("dict[str, Any]", text) if isinstance(text, dict) else config
    context = next((lengths[name] for name in _LENGTHS if isinstance(lengths.get(name), int)), None)
    architectures = config.get("architectures")
    names = [name for name in architectures if isinstance(name, str)] if isinstance(architectures, list) else []
    tokenizer = folder / "tokenizer_config.json"
    template = (folder / "chat_template.jinja").is_file() or (
        tokenizer.is_file() and bool(read_json(tokenizer).get("chat_template"))
    )
    # Sentence Transformers list their parts in modules.json; an architecture that only encodes ends in Model.
    embedding = (folder / "modules.json").is_file() or any(name.endswith("Model") for name in names)
    return Facts(config, context, embedding, template)


def read_json(path: Path) -> dict[str, Any]:
    """An object of JSON. EngineError that names the file where it is none."""
    try:
        if path.stat().st_size > LARGEST_CONFIG:
            raise EngineError(f"{path} is too large to be a model's configuration.")
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise EngineError(f"{path} cannot be read: {type(error).__name__}.") from error
    if not isinstance(value, dict):
        raise EngineError(f"{path} is not a model's configuration.")
    return cast("dict[str, Any]", value)

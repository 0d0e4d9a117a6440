"""Flags of llama.cpp's own server, set on the parameters of the package that carries it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from os.path import commonprefix
from typing import Any

ATTRIBUTES: Mapping[str, str] = {
    "batch-size": "n_batch",
    "ubatch-size": "n_ubatch",
    "flash-attn": "flash_attn_type",
    "cache-type-k": "cache_type_k",
    "cache-type-v": "cache_type_v",
    "cache-ram": "cache_ram_mib",
    "cache-reuse": "n_cache_reuse",
    "ctx-checkpoints": "n_ctx_checkpoints",
    "kv-unified": "kv_unified",
    "no-kv-offload": "no_kv_offload",
    "swa-full": "swa_full",
    "slot-prompt-similarity": "slot_prompt_similarity",
    "n-gpu-layers": "n_gpu_layers",
    "gpu-layers": "n_gpu_layers",
    "main-gpu": "main_gpu",
    "split-mode": "split_mode",
    "numa": "numa",
    "chat-template": "chat_template",
    "reasoning-format": "reasoning_format",
    "keep": "n_keep",
    "threads-http": "n_threads_http",
    "rope-scaling": "rope_scaling_type",
    "rope-freq-base": "rope_freq_base",
    "rope-freq-scale": "rope_freq_scale",
    "yarn-orig-ctx": "yarn_orig_ctx",
    "yarn-ext-factor": "yarn_ext_factor",
    "yarn-attn-factor": "yarn_attn_factor",
    "yarn-beta-slow": "yarn_beta_slow",
    "yarn-beta-fast": "yarn_beta_fast",
    "check-tensors": "check_tensors",
}
"""The name of a flag, and the attribute of `CommonParams` that it sets."""
_SWITCH = {"on": "enabled", "off": "disabled"}


class UnknownFlagError(Exception):
    """What is wrong with a flag, as the end of a sentence."""


def set_flags(parameters: Any, args: Sequence[str]) -> None:
    """Set what `--name=value`, `--name value` and `--name` ask for. Raises UnknownFlagError."""
    rest = list(args)
    while rest:
        flag, sign, value = rest.pop(0).partition("=")
        attribute = ATTRIBUTES.get(flag.removeprefix("--").replace("_", "-")) if flag.startswith("--") else None
        if attribute is None:
            raise UnknownFlagError(f"llama.cpp has no flag {flag} that can be passed through --engine-arg")
        now = getattr(parameters, attribute)
        if not sign and not isinstance(now, bool):
            if not rest:
                raise UnknownFlagError(f"the flag {flag} needs a value")
            value = rest.pop(0)
        try:
            setattr(parameters, attribute, _read(now, value))
        except (ValueError, OverflowError):
            raise UnknownFlagError(f"the flag {flag} does not take {value!r}") from None


def _read(now: object, value: str) -> object:
    """The value in the type that the parameter has now. ValueError where it does not fit."""
    if isinstance(now, bool):
        if value.lower() not in ("", "true", "false", "on", "off", "1", "0"):
            raise ValueError
        return value.lower() in ("", "true", "on", "1")
    if isinstance(now, Enum):
        names = {one.name: one for one in type(now)}
        # Their names begin with that of the type: GGML_TYPE_Q8_0, LLAMA_SPLIT_MODE_LAYER.
        wanted = commonprefix(list(names)) + _SWITCH.get(value.lower(), value).upper()  # noqa: RUF071
        if wanted not in names:
            raise ValueError
        return names[wanted]
    return type(now)(value)  # type: ignore[call-arg]

"""Which of an engine's own flags may be passed through to it: all but those that Overnight sets itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from overnight.engine.errors import EngineError

_ITS_ADDRESS = "Overnight chooses the engine's address itself"
_ITS_KEY = "every start of the engine gets a key of its own"
_ITS_MODEL = "name the model with --model"
_ITS_SLOTS = "use --engine-slots"
_ITS_CONTEXT = "use --max-context-length"

VLLM_OWN: Mapping[str, str] = {
    "host": _ITS_ADDRESS,
    "port": _ITS_ADDRESS,
    "uds": _ITS_ADDRESS,
    "root-path": _ITS_ADDRESS,
    "ssl-keyfile": _ITS_ADDRESS,
    "ssl-certfile": _ITS_ADDRESS,
    "ssl-ca-certs": _ITS_ADDRESS,
    "api-key": _ITS_KEY,
    "model": _ITS_MODEL,
    "model-tag": _ITS_MODEL,
    "served-model-name": _ITS_MODEL,
    "headless": "the engine of a model must answer calls; start `vllm serve --headless` on the other machines yourself",
}
LLAMA_CPP_OWN: Mapping[str, str] = {
    "host": _ITS_ADDRESS,
    "port": _ITS_ADDRESS,
    "api-prefix": _ITS_ADDRESS,
    "ssl-key-file": _ITS_ADDRESS,
    "ssl-cert-file": _ITS_ADDRESS,
    "api-key": _ITS_KEY,
    "api-key-file": _ITS_KEY,
    "model": _ITS_MODEL,
    "alias": _ITS_MODEL,
    "parallel": _ITS_SLOTS,
    "ctx-size": _ITS_CONTEXT,
    "threads": "use --engine-threads",
}
_SHORT = {
    "-m": "model",
    "-a": "alias",
    "-np": "parallel",
    "-c": "ctx-size",
    "-t": "threads",
    "-dp": "data-parallel-size",
}


def check_flags(engine: str, args: Sequence[str], own: Mapping[str, str]) -> None:
    """Raise EngineError for the first flag that Overnight sets itself, also where it is shortened."""
    for arg in args:
        name = flag_name(arg)
        if name is None:
            continue
        # Both engines' parsers take the beginning of a name for the whole.
        meant = next((one for one in own if name and one.startswith(name)), None)
        if meant is not None:
            raise EngineError(f"--engine-arg={arg.partition('=')[0]} cannot be passed to {engine}: {own[meant]}.")


def flag_name(arg: str) -> str | None:
    """The name of a flag, `tensor-parallel-size` for `--tensor_parallel_size=2`; None for what is a value."""
    short = _SHORT.get(arg.partition("=")[0])
    if short is not None:
        return short
    if not arg.startswith("--"):
        return None
    # vLLM writes the fields of a JSON value as `--flag.field`.
    return arg[2:].partition("=")[0].partition(".")[0].replace("_", "-").lower()


def flag_value(args: Sequence[str], name: str) -> str | None:
    """The last value given to a flag, as `--name=value` or `--name value`."""
    found = None
    for i, arg in enumerate(args):
        if flag_name(arg) == name:
            _, sign, value = arg.partition("=")
            following = args[i + 1] if i + 1 < len(args) else None
            found = value if sign else following
    return found

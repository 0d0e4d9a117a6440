"""Options of the commands that start a server, and how they become settings."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Annotated, Any

import typer

from overnight.domain.bodies import is_field
from overnight.domain.limits import Limits
from overnight.engine.names import Engine
from overnight.settings import LOAD_SECONDS, Settings, Upstream, data_dir

HOSTING = "What it runs on"
DEFAULTS = Limits()

DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        help="Where data is kept. (default: $OVERNIGHT_DATA_DIR or the user's data directory)",
        rich_help_panel=HOSTING,
    ),
]
DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        "--database-url",
        metavar="URL",
        envvar="OVERNIGHT_DATABASE_URL",
        show_envvar=True,
        help="A PostgreSQL of yours, 15 or newer. (default: an embedded one in the data directory)"
        " Other users of the machine see it in the list of processes: the variable hides it.",
        rich_help_panel=HOSTING,
    ),
]
PostgresBin = Annotated[
    Path | None,
    typer.Option("--postgres-bin", metavar="DIR", help="PostgreSQL programs to embed.", rich_help_panel=HOSTING),
]
Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        metavar="MODEL",
        help="A GGUF file, a folder with a model, a Hugging Face id such as Qwen/Qwen3-0.6B-GGUF:Q8_0, or an installed "
        "model package or the id of the model in it. Repeatable: an engine each.",
        rich_help_panel=HOSTING,
    ),
]
Upstreams = Annotated[
    list[str] | None,
    typer.Option(
        "--upstream",
        metavar="URL",
        help="Base URL of an OpenAI-compatible server, with its /v1. Repeatable. Its key: $OVERNIGHT_UPSTREAM_KEY.",
        rich_help_panel=HOSTING,
    ),
]
UpstreamSlots = Annotated[
    int | None,
    typer.Option(
        "--upstream-slots",
        min=1,
        help="The most requests each upstream is given at once. (default: found while it runs, up to 1,024)",
        rich_help_panel=HOSTING,
    ),
]
UpstreamLacks = Annotated[
    list[str] | None,
    typer.Option(
        "--upstream-lacks",
        metavar="FIELD",
        help="A field of bodies that the upstreams would drop or fail on, such as logprobs, messages.image_url or"
        " tools.custom: a batch that needs it is refused by its name. Repeatable.",
        rich_help_panel=HOSTING,
    ),
]
EngineName = Annotated[
    Engine | None,
    typer.Option(
        "--engine",
        help="What runs the models. (default: vLLM where there is an NVIDIA GPU, llama.cpp elsewhere)",
        rich_help_panel=HOSTING,
    ),
]
EngineArgs = Annotated[
    list[str] | None,
    typer.Option(
        "--engine-arg",
        metavar="FLAG",
        help="A flag passed through to every engine of this process: --engine-arg=--tensor-parallel-size=2. Repeatable."
        " Start a process each, on the same data, for models that need different ones.",
        rich_help_panel=HOSTING,
    ),
]
Vllm = Annotated[
    Path | None,
    typer.Option(
        "--vllm",
        metavar="PATH",
        envvar="OVERNIGHT_VLLM",
        show_envvar=True,
        help="The command of vLLM. (default: `vllm` beside Overnight's or on PATH)",
        rich_help_panel=HOSTING,
    ),
]
EngineSlots = Annotated[
    int | None,
    typer.Option(
        "--engine-slots",
        min=1,
        help="Requests a local engine runs at once: llama.cpp exactly so many, vLLM at the most, for each copy"
        " of the model. (default: llama.cpp two a core, as far as memory goes; vLLM found while it runs)",
        rich_help_panel=HOSTING,
    ),
]
EngineThreads = Annotated[
    int | None, typer.Option("--engine-threads", min=1, help="Threads of a local engine.", rich_help_panel=HOSTING)
]
EngineLoadSeconds = Annotated[
    int,
    typer.Option(
        "--engine-load-timeout",
        min=1,
        metavar="SECONDS",
        help="A local engine that is loading is given up when it has read nothing for so long; while it reads there is"
        " no limit. More where a first compilation takes longer.",
        rich_help_panel=HOSTING,
    ),
]
ContextLength = Annotated[
    int | None,
    typer.Option(
        "--max-context-length",
        min=16,
        help="Tokens of one request at a local engine, prompt and answer together. (default: the model's own; with"
        " llama.cpp as far as half of the free memory holds them for all slots)",
        rich_help_panel=HOSTING,
    ),
]
MaxPoolSize = Annotated[
    int,
    typer.Option("--max-pool-size", min=1, help="Requests this process may run at once.", rich_help_panel=HOSTING),
]
MaxIntake = Annotated[
    int,
    typer.Option(
        "--max-intake-capacity", min=1, help="Requests that may be waiting, over all batches.", rich_help_panel=HOSTING
    ),
]


def settings(
    *,
    model: Models = None,
    upstream: Upstreams = None,
    data: DataDir = None,
    database_url: DatabaseUrl = None,
    postgres_bin: PostgresBin = None,
    upstream_slots: UpstreamSlots = None,
    upstream_lacks: UpstreamLacks = None,
    engine: EngineName = None,
    engine_arg: EngineArgs = None,
    vllm: Vllm = None,
    engine_slots: EngineSlots = None,
    engine_threads: EngineThreads = None,
    engine_load_seconds: EngineLoadSeconds = LOAD_SECONDS,
    context_length: ContextLength = None,
    max_pool_size: MaxPoolSize = DEFAULTS.slots,
    max_intake: MaxIntake = DEFAULTS.intake,
) -> Settings:
    """What a process is started with, from the options of a command."""
    key = os.environ.get("OVERNIGHT_UPSTREAM_KEY") or None
    lacks = _fields(upstream_lacks or [])
    return Settings(
        data_dir=data_dir(data),
        database_url=database_url,
        postgres_bin=postgres_bin,
        models=tuple(model or ()),
        upstreams=tuple(Upstream(url, key, upstream_slots, lacks) for url in upstream or ()),
        engine=engine,
        engine_args=tuple(engine_arg or ()),
        vllm=vllm,
        engine_slots=engine_slots,
        engine_threads=engine_threads,
        engine_load_seconds=engine_load_seconds,
        context_length=context_length,
        limits=Limits(slots=max_pool_size, intake=max_intake),
    )


def _fields(names: list[str]) -> frozenset[str]:
    for name in names:
        if not is_field(name):
            raise typer.BadParameter(f"{name!r} is no field of any body.", param_hint="--upstream-lacks")
    return frozenset(names)


def given_options(context: typer.Context, *, but: Collection[str] = ()) -> list[str]:
    """The options of `settings` that were given on the command line, but for some, in the order of the help."""
    sources = {
        option: context.get_parameter_source(option)
        for option in inspect.signature(settings).parameters
        if option not in but
    }
    flags = {param.name: max(param.opts, key=len) for param in context.command.params}
    return [flags[option] for option, source in sources.items() if source and source.name == "COMMANDLINE"]


def hosted(command: Callable[..., None], *, without: Collection[str] = ()) -> Callable[..., None]:
    """Give a command the options of `settings` beside its own; it is called with what these make, as `settings`.

    Those named in `without` are left out, and as if they were not given.
    """
    every = inspect.signature(settings, eval_str=True).parameters
    options = {name: option for name, option in every.items() if name not in without}
    own = inspect.signature(command, eval_str=True).parameters

    def wrapped(**given: Any) -> None:
        chosen = settings(**{name: given.pop(name) for name in options})
        command(**given, settings=chosen)

    shown = [*(p for name, p in own.items() if name != "settings"), *options.values()]
    wrapped.__name__, wrapped.__doc__ = command.__name__, command.__doc__
    wrapped.__annotations__ = {p.name: p.annotation for p in shown}
    wrapped.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    return wrapped

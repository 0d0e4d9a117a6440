"""What a process is told to serve becomes engines, each of the kind that fits, or one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from overnight.catalog.from_settings import engines_of, fetch_models
from overnight.cli.hosting import settings
from overnight.domain import events
from overnight.domain.errors import Unusable
from overnight.engine import choose
from overnight.engine.names import Engine
from overnight.settings import Part, Settings, Upstream
from tests.engine.drivers import write_stand_in
from tests.tiny_model import write_tiny_model
from tests.tiny_transformers import write_tiny_bert, write_tiny_llama


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "has_cuda", lambda: False)


def test_each_model_has_an_engine_and_a_log_of_its_own(tmp_path: Path) -> None:
    writer, reader = write_tiny_model(tmp_path / "writer.gguf"), write_tiny_bert(tmp_path / "reader")

    engines = engines_of(Settings(tmp_path / "data", models=(str(writer), str(reader)), engine_slots=3))

    assert [(e.model.id, e.model.embedding, e.slots) for e in engines] == [("writer", False, 3), ("reader", True, 3)]
    assert [e.log.path for e in engines] == [tmp_path / "data" / f"engine-{name}.log" for name in ("writer", "reader")]
    assert engines[1].model.path.parent == tmp_path / "data" / "models"


def test_a_process_that_has_upstreams_alone_needs_no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("overnight.catalog.from_settings.available_memory", lambda: 1 << 30)

    assert engines_of(Settings(tmp_path, upstreams=(Upstream("http://127.0.0.1:9/v1"),))) == []


def test_what_is_asked_of_vllm_reaches_it(tmp_path: Path) -> None:
    model = write_tiny_llama(tmp_path / "chat")
    asked = settings(
        model=[str(model)],
        data=tmp_path,
        engine=Engine.VLLM,
        engine_arg=["--tensor-parallel-size=2", "--max-num-seqs=64"],
        vllm=write_stand_in(tmp_path),
        context_length=128,
        engine_load_seconds=60,
    )

    [engine] = engines_of(asked)

    assert engine.slots == 64
    assert engine.pace.load_within == 60
    assert engine.launch.slots_share_cache
    command = " ".join(engine.launch.command)
    assert f"{tmp_path / 'vllm'} serve {model} --tensor-parallel-size=2 --max-num-seqs=64" in command
    assert "--max-model-len 128" in command


def test_a_model_that_no_engine_here_can_run_is_refused_with_what_to_do(tmp_path: Path) -> None:
    model = str(write_tiny_llama(tmp_path / "chat"))
    with pytest.raises(Unusable, match=r"which llama\.cpp does not load\. Name a GGUF file"):
        engines_of(Settings(tmp_path, models=(model,)))
    with pytest.raises(Unusable, match="There is no vLLM at /nowhere/vllm"):
        engines_of(Settings(tmp_path, models=(model,), engine="vllm", vllm=Path("/nowhere/vllm")))


def test_two_models_that_requests_could_not_tell_apart_are_refused(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        write_tiny_model(tmp_path / folder / "same.gguf")

    with pytest.raises(Unusable, match="would both be called same"):
        engines_of(Settings(tmp_path, models=(str(tmp_path / "a"), str(tmp_path / "b"))))


def test_a_context_beyond_the_models_own_is_told_in_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[str, Any]] = []
    monkeypatch.setattr(events, "tell", lambda event, **facts: told.append({"event": event, **facts}))
    model = write_tiny_model(tmp_path / "m.gguf")

    engines_of(Settings(tmp_path, models=(str(model),), context_length=4_096))

    assert [(one["event"], one["model"]) for one in told] == [("engine_cut", "m")]
    assert "4,096" in told[0]["reason"]
    assert "2,048" in told[0]["reason"]


def test_models_are_looked_up_before_anything_starts_and_only_where_they_run(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="There is no file"):
        fetch_models(Settings(tmp_path, models=("/nowhere/m.gguf",)))
    fetch_models(Settings(tmp_path, models=("/nowhere/m.gguf",), parts=frozenset({Part.API})))


def test_an_engine_that_does_not_exist_is_refused_on_the_command_line() -> None:
    from overnight.cli.app import app

    refused = CliRunner().invoke(app, ["serve", "--engine", "sglang"])

    assert refused.exit_code == 2
    assert "llama.cpp" in refused.output

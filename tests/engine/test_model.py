"""`--model` finds what it names, or says what to do instead."""

from __future__ import annotations

import re
import sys
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest

from overnight.engine import installed
from overnight.engine.errors import EngineError
from overnight.engine.model import default_model, model_id, read_model, resolve_model
from tests.tiny_model import write_tiny_embedding_model, write_tiny_model


def install(monkeypatch: pytest.MonkeyPatch, site: Path, name: str, models: int = 1, broken: bool = False) -> None:
    """Lay a package into a folder of its own as an installer would; importing it would fail."""
    folder = name.replace("-", "_")
    (site / folder).mkdir(parents=True)
    (site / folder / "__init__.py").write_text("raise ImportError('this package must not be imported')")
    record = [f"{folder}/__init__.py,,"]
    for number in range(models):
        file = site / folder / f"Model-{number}-Chat.Q4_0.gguf"
        write_tiny_model(file)
        if broken:
            file.write_bytes(b"not a model")
        record.append(f"{folder}/{file.name},,")
    info = site / f"{folder}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "RECORD").write_text("\n".join(record))
    monkeypatch.syspath_prepend(site)


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this environment has installed does not count, only what a test installs."""

    def in_front() -> list[PathDistribution]:
        return [PathDistribution(info) for site in sys.path[:3] for info in Path(site).glob("*-1.0.dist-info")]

    monkeypatch.setattr(installed, "distributions", in_front)


def test_a_file_is_described_by_its_header_and_name(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "Tiny-Chat.Q4_0.gguf", name="Tiny of Tests", context_length=777)

    found = resolve_model(str(path))

    assert found.path == path
    assert found.id == "tiny-chat"
    assert found.aliases == ("Tiny-Chat", "Tiny-Chat.Q4_0", "Tiny of Tests")
    assert (found.context_length, found.embedding, found.chat_template) == (777, False, True)


def test_a_file_without_a_chat_template_says_so(tmp_path: Path) -> None:
    assert not read_model(write_tiny_model(tmp_path / "m.gguf", chat_template=False)).chat_template


def test_an_embedding_model_is_known_by_its_header(tmp_path: Path) -> None:
    assert read_model(write_tiny_embedding_model(tmp_path / "m.gguf")).embedding


def test_a_writing_model_that_says_how_to_pool_is_an_embedding_model(tmp_path: Path) -> None:
    assert read_model(write_tiny_model(tmp_path / "m.gguf", pooling=True)).embedding


def test_a_folder_with_one_model_is_that_model(tmp_path: Path) -> None:
    write_tiny_model(tmp_path / "only.GGUF")
    (tmp_path / "README.md").write_text("about it")

    assert resolve_model(str(tmp_path)).id == "only"


def test_a_folder_with_several_models_is_refused_with_their_names(tmp_path: Path) -> None:
    for name in ("one.gguf", "two.gguf"):
        write_tiny_model(tmp_path / name)

    with pytest.raises(EngineError, match=r"one\.gguf, two\.gguf"):
        resolve_model(str(tmp_path))


def test_a_model_in_parts_is_one_model(tmp_path: Path) -> None:
    for part in (1, 2, 3):
        write_tiny_model(tmp_path / f"Large-Q8_0-0000{part}-of-00003.gguf")

    found = resolve_model(str(tmp_path))

    assert (found.path.name, found.id) == ("Large-Q8_0-00001-of-00003.gguf", "large")


def test_an_installed_package_is_found_without_importing_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install(monkeypatch, tmp_path, "llm-invented")

    found = resolve_model("llm-invented")

    assert found.id == "model-0-chat"
    assert "llm-invented" in found.aliases
    assert "llm_invented" not in sys.modules


@pytest.mark.usefixtures("nothing_installed")
@pytest.mark.parametrize("named", ["model-0-chat", "Model-0-Chat"])
def test_the_model_in_a_package_is_found_by_its_own_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, named: str
) -> None:
    install(monkeypatch, tmp_path / "a", "llm-invented")
    assert "llm-invented" in resolve_model(named).aliases

    install(monkeypatch, tmp_path / "b", "llm-other")
    with pytest.raises(EngineError, match="nor a model in one"):
        resolve_model(named)


@pytest.mark.usefixtures("nothing_installed")
def test_a_name_that_is_nearly_right_is_answered_with_the_right_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install(monkeypatch, tmp_path, "llm-invented")
    beside = write_tiny_model(tmp_path / "small-q8_0.gguf")

    for wrong, right in (
        ("lm-inventd", "llm-invented"),
        ("model-0-cht", "model-0-chat"),
        (str(tmp_path / "smal-q8_0.gguf"), str(beside)),
    ):
        with pytest.raises(EngineError, match=rf"Did you mean (.* or )?{re.escape(right)}[ ?]"):
            resolve_model(wrong)
    with pytest.raises(EngineError, match=r"Installed are: llm-invented, model-0-chat\."):
        resolve_model("nothing-like-them-at-all")


def test_a_package_without_exactly_one_model_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install(monkeypatch, tmp_path / "a", "llm-two", models=2)
    install(monkeypatch, tmp_path / "b", "llm-none", models=0)

    with pytest.raises(EngineError, match="llm-two holds 2 models"):
        resolve_model("llm-two")
    with pytest.raises(EngineError, match="llm-none holds no models"):
        resolve_model("llm-none")


@pytest.mark.usefixtures("nothing_installed")
def test_without_a_name_the_one_installed_model_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert default_model() is None

    install(monkeypatch, tmp_path / "a", "llm-invented")
    install(monkeypatch, tmp_path / "b", "llm-none", models=0)

    found = default_model()
    assert found is not None
    assert found.id == "model-0-chat"


@pytest.mark.usefixtures("nothing_installed")
def test_without_a_name_several_installed_models_are_listed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install(monkeypatch, tmp_path / "a", "llm-one")
    install(monkeypatch, tmp_path / "b", "llm-other")

    with pytest.raises(EngineError, match="llm-one, llm-other"):
        default_model()


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ("/nowhere/m.gguf", "There is no file /nowhere/m.gguf"),
        ("m.gguf", "There is no file m.gguf"),
        ("no-such-package", "neither an installed model package nor a model in one"),
        ("", "neither an installed model package nor a model in one"),
        ("a" * 5_000, "cannot be looked up"),
        ("~nobody-of-this-name/m", "cannot be looked up"),
    ],
)
def test_what_is_not_there_is_refused_with_what_to_do(named: str, says: str) -> None:
    with pytest.raises(EngineError, match=says):
        resolve_model(named)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="holds no model: neither a GGUF file"):
        resolve_model(str(tmp_path))


def test_a_file_that_is_no_model_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "notes.gguf").write_text("not a model")

    with pytest.raises(EngineError, match=r"notes\.gguf is not a usable GGUF file"):
        resolve_model(str(tmp_path / "notes.gguf"))


@pytest.mark.parametrize(
    ("stem", "expected"),
    [
        ("SmolLM2-135M-Instruct.Q4_1", "smollm2-135m-instruct"),
        ("Qwen2.5-7B-Instruct-Q4_K_M", "qwen2.5-7b-instruct"),
        ("Llama-3.2-1B-Instruct-UD-IQ2_XXS", "llama-3.2-1b-instruct"),
        ("gemma-3-270m-it-F16", "gemma-3-270m-it"),
        ("gpt-oss-20b-MXFP4", "gpt-oss-20b"),
        ("my model (new)", "my-model-new"),
        ("模型-v1.5.BF16", "模型-v1.5"),
        ("___", "model"),
    ],
)
def test_an_id_is_made_of_a_file_name(stem: str, expected: str) -> None:
    assert model_id(stem) == expected

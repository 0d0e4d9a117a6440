"""`overnight serve --model`: batches on models that it starts itself."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai.types import Completion, CreateEmbeddingResponse
from openai.types.chat import ChatCompletion

from tests.process import Served, chat
from tests.sdk_types import T, strictly
from tests.tiny_model import write_tiny_embedding_model, write_tiny_model

pytest.importorskip("xllamacpp", reason="the engine is an extra that is not installed")


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Two models at once, each with an engine of its own."""
    folder = tmp_path_factory.mktemp("models")
    writer = write_tiny_model(folder / "test-model.gguf")
    reader = write_tiny_embedding_model(folder / "test-embedder.gguf")
    options = ["--model", str(writer), "--model", str(reader), "--max-context-length", "256"]
    options += ["--allow-host", "models.example.org"]
    with Served(tmp_path_factory.mktemp("engines"), *options) as served:
        yield served


def answers(service: Served, lines: list[dict[str, Any]], endpoint: str = "/v1/chat/completions") -> dict[str, Any]:
    """Run requests as a batch and return all result lines by custom_id."""
    ended = service.wait(service.submit(lines, endpoint))
    assert ended["status"] == "completed", ended["errors"]
    found = [*service.lines(ended["output_file_id"]), *service.lines(ended["error_file_id"])]
    return {line["custom_id"]: line for line in found}


def test_both_models_are_listed(engines: Served) -> None:
    assert {model["id"] for model in engines.get("/v1/models")["data"]} == {"test-model", "test-embedder"}


def test_chat_completions_and_embeddings_run_on_them(engines: Served) -> None:
    said = answers(engines, [chat(f"c-{i}", f"hello {i}", max_tokens=8) for i in range(20)])
    prompt = {"model": "test-model", "prompt": "once", "max_tokens": 8}
    went_on = answers(
        engines, [{"custom_id": "p", "method": "POST", "url": "/v1/completions", "body": prompt}], "/v1/completions"
    )
    text = {"model": "test-embedder", "input": "a text"}
    vectors = answers(
        engines, [{"custom_id": "e", "method": "POST", "url": "/v1/embeddings", "body": text}], "/v1/embeddings"
    )

    assert len(said) == 20
    for line in said.values():
        assert line["error"] is None
        assert line["response"]["body"]["usage"]["completion_tokens"] <= 8
        assert line["response"]["body"]["model"] == "test-model"
    completion = as_sdk(Completion, went_on["p"])
    assert (completion.object, completion.model) == ("text_completion", "test-model")
    assert len(as_sdk(CreateEmbeddingResponse, vectors["e"]).data[0].embedding) > 0
    for line in said.values():
        assert as_sdk(ChatCompletion, line).choices[0].message.role == "assistant"


def test_both_answer_the_sdk_at_once(engines: Served) -> None:
    with openai.OpenAI(base_url=f"{engines.url}/v1", api_key="unused") as sdk:
        asked = sdk.chat.completions.create(
            model="test-model", messages=[{"role": "user", "content": "hello"}], max_tokens=8, stream=True
        )
        chunks = list(asked)
        vector = sdk.embeddings.create(model="test-embedder", input="a text").data[0].embedding
        with pytest.raises(openai.BadRequestError) as refused:
            sdk.chat.completions.create(
                model="test-model", messages=[{"role": "user", "content": "word " * 2_000}], max_tokens=8
            )
    assert chunks[-1].choices[0].finish_reason in ("length", "stop")
    assert len(vector) > 0
    assert refused.value.code == "context_length_exceeded"


def as_sdk(kind: type[T], line: dict[str, Any]) -> T:
    """The body of an answer, held against the SDK's own type."""
    return strictly(kind, json.dumps(line["response"]["body"]).encode(), whole=False)


def test_the_same_question_gets_the_same_answer_where_nothing_else_is_asked(engines: Served) -> None:
    first = answers(engines, [chat("only", "say something", max_tokens=12)])
    second = answers(engines, [chat("only", "say something", max_tokens=12)])

    assert text_of(first["only"]) == text_of(second["only"])


def text_of(line: dict[str, Any]) -> str:
    return str(line["response"]["body"]["choices"][0]["message"]["content"])


def test_a_prompt_that_is_too_long_is_the_error_of_its_own_line_with_both_numbers(engines: Served) -> None:
    found = answers(engines, [chat("long", "word " * 2_000, max_tokens=4), chat("short", "word", max_tokens=4)])

    assert found["short"]["error"] is None
    error = found["long"]["error"]
    assert error["code"] == "context_length_exceeded"
    numbers = [int(word) for word in error["message"].replace(",", "").split() if word.strip(".").isdigit()]
    assert len(numbers) == 2
    assert numbers[0] > numbers[1] >= 256


def test_a_request_without_any_limit_ends_with_its_context(engines: Served) -> None:
    found = answers(engines, [chat("free", "go on")])

    usage = found["free"]["response"]["body"]["usage"]
    assert usage["total_tokens"] <= 512
    assert found["free"]["response"]["body"]["choices"][0]["finish_reason"] in ("length", "stop")


@pytest.mark.parametrize(
    ("line", "endpoint"),
    [
        (chat("x", "hi", model="gpt-4"), "/v1/chat/completions"),
        (chat("x", "hi", model="test-embedder"), "/v1/chat/completions"),
    ],
)
def test_a_model_that_is_not_served_for_this_endpoint_refuses_the_batch(
    engines: Served, line: dict[str, Any], endpoint: str
) -> None:
    ended = engines.wait(engines.submit([line], endpoint))

    assert ended["status"] == "failed"
    assert ended["errors"]["data"][0]["code"] == "model_not_found"


def test_the_key_of_an_engine_is_in_no_log_and_no_command_line(engines: Served) -> None:
    assert engines.process is not None
    import psutil

    children = psutil.Process(engines.process.pid).children(recursive=True)
    commands = [" ".join(child.cmdline()) for child in children if "llama_server" in " ".join(child.cmdline())]
    logs = "".join(path.read_text("utf-8", "replace") for path in engines.folder.glob("*.log"))

    assert len(commands) == 2
    assert not any("key" in command for command in commands)
    assert "api_key" not in logs


def test_it_answers_under_the_name_of_a_proxy_that_it_was_told_and_under_no_other(engines: Served) -> None:
    url = f"{engines.url}/v1/models"

    assert httpx.get(url, headers={"Host": "models.example.org"}).status_code == 200
    assert httpx.get(url, headers={"Host": "other.example.org"}).status_code == 403


def test_health_is_well_once_both_have_loaded(engines: Served) -> None:
    answers(engines, [chat("warm", "hi", max_tokens=1)])

    answer = httpx.get(f"{engines.url}/health")

    assert (answer.status_code, answer.json()) == (200, {"status": "healthy"})


def test_a_model_file_that_cannot_be_loaded_ends_the_start_with_the_reason(tmp_path: Path) -> None:
    whole = write_tiny_model(tmp_path / "whole.gguf").read_bytes()
    (tmp_path / "cut.gguf").write_bytes(whole[: len(whole) // 2])
    command = [sys.executable, "-m", "overnight", "serve", "--port", "0", "--data-dir", str(tmp_path / "data")]

    ended = subprocess.run(
        [*command, "--model", str(tmp_path / "cut.gguf")], capture_output=True, text=True, timeout=180
    )

    assert ended.returncode == 3
    said = " ".join(ended.stderr.split()).replace(" ", "")
    assert "cut.gguf" in said
    assert "corruptedorincomplete" in said
    assert "Traceback" not in said

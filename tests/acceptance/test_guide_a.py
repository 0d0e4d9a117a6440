"""What users of a batch server in front of one model were promised: the flow, its states, lines, limits and results."""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import overnight
from tests.acceptance.ways import CHAT, WAYS, Body, Way, ended
from tests.process import Served, chat
from tests.witness import Witness


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, service: Served) -> Iterator[Way]:
    made = WAYS[request.param](service.url)
    yield made
    made.close()


@pytest.fixture
def http(service: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=service.url, trust_env=False, timeout=60) as client:
        yield client


@pytest.fixture
def client(service: Served) -> Iterator[overnight.Client]:
    with overnight.Client(service.url) as made:
        yield made


def write(folder: Path, *lines: Body | str) -> Path:
    path = folder / "input.jsonl"
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines), "utf-8")
    return path


def parsed(content: bytes) -> dict[str, Body]:
    return {line["custom_id"]: line for line in map(json.loads, content.decode().splitlines())}


def until_completed(way: Way, batch: Body, count: int) -> None:
    """Wait until so many of its requests have a response."""
    deadline = time.monotonic() + 180
    while (counts := way.get(batch["id"])["request_counts"])["completed"] < count:
        assert time.monotonic() < deadline, counts
        time.sleep(0.05)


def sent(witness: Witness, text: str) -> Body:
    """The body that reached the model for a question."""
    (body,) = [body for body in witness.bodies if body.get("messages", [{}])[-1].get("content") == text]
    return body


# Quick start


def test_one_call_uploads_creates_waits_and_downloads(client: overnight.Client, tmp_path: Path) -> None:
    out = tmp_path / "output.jsonl"
    batch = client.submit_batch(
        input_file_path=str(write(tmp_path, chat("a", "one-liner"), chat("b", "[status 400] no"))),
        output_file_path=str(out),
        max_decoding_length=4096,
    )
    assert batch["status"] == "completed"
    assert parsed(out.read_bytes()).keys() == {"a", "b"}


def test_step_by_step(client: overnight.Client, tmp_path: Path) -> None:
    file = client.upload_file(str(write(tmp_path, chat("a", "stepwise"))), purpose="batch")
    batch = client.create_batch(input_file_id=file["id"], endpoint=CHAT, max_decoding_length=4096, temperature=0.7)
    assert batch["status"] == "validating"
    batch = client.wait_for_batch(batch["id"], poll_interval=10.0)
    content = client.download_file_content(batch["output_file_id"])
    assert isinstance(content, bytes)
    assert parsed(content)["a"]["response"]["status_code"] == 200


def test_upload_create_status_download_in_each_way(way: Way, tmp_path: Path) -> None:
    file = way.upload(write(tmp_path, *(chat(f"r-{i}", f"each way {i}") for i in range(5))))
    assert file["id"].startswith("file-")
    batch = way.create(file["id"], max_decoding_length=4096)
    assert batch["id"].startswith("batch_")
    done = ended(way, batch)
    assert (done["status"], done["max_decoding_length"]) == ("completed", 4096)
    assert parsed(way.content(done["output_file_id"])).keys() == {f"r-{i}" for i in range(5)}


def test_thousands_of_prompts_go_in_a_single_call(client: overnight.Client, tmp_path: Path) -> None:
    path, out = write(tmp_path, *(chat(f"r-{i}", f"many {i}") for i in range(3000))), tmp_path / "out"
    batch = client.submit_batch(str(path), str(out), poll_interval=0.5)
    assert batch["request_counts"] == {"total": 3000, "completed": 3000, "failed": 0}
    assert len(parsed(out.read_bytes())) == 3000


SIGNATURES: dict[str, dict[str, Any]] = {
    "health_check": {},
    "upload_file": {"purpose": "batch"},
    "create_batch": {
        "endpoint": CHAT, "completion_window": "24h", "metadata": None, "max_decoding_length": None,
        "max_context_length": None, "temperature": None, "top_p": None, "top_k": None,
    },
    "get_batch": {},
    "wait_for_batch": {"poll_interval": 5.0, "timeout": None},
    "download_file_content": {},
    "get_file": {},
    "submit_batch": {
        "output_file_path": None, "endpoint": CHAT, "poll_interval": 5.0, "timeout": None,
        "max_decoding_length": None, "max_context_length": None, "temperature": None, "top_p": None, "top_k": None,
    },
    "close": {},
}  # fmt: skip


@pytest.mark.parametrize("name", SIGNATURES)
@pytest.mark.parametrize("kind", [overnight.Client, overnight.AsyncClient])
def test_the_client_has_each_method_with_its_arguments_and_defaults(kind: type, name: str) -> None:
    parameters = inspect.signature(getattr(kind, name)).parameters
    defaults = {
        n: p.default for n, p in parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD and p.default is not p.empty
    }
    assert defaults == SIGNATURES[name]


def test_a_client_needs_nothing_but_the_url(service: Served) -> None:
    client = overnight.Client(service.url)
    assert client.health_check() is True
    client.close()
    assert overnight.Client("http://127.0.0.1:9").health_check() is False


# The life of a batch


def test_a_batch_is_validating_in_progress_and_completed_with_an_output_file(
    way: Way, witness: Witness, tmp_path: Path
) -> None:
    # By the folder, which each way has for itself.
    name = tmp_path.name
    batch = way.create(
        way.upload(write(tmp_path, *(chat(f"r-{i}", f"[held {name}] life {i}") for i in range(3))))["id"]
    )
    assert (batch["status"], batch.get("output_file_id")) == ("validating", None)
    seen = []
    while batch["status"] not in ("completed", "failed"):
        batch = way.get(batch["id"])
        seen.append(batch["status"])
        if batch["status"] == "in_progress":
            witness.let(name)
        time.sleep(0.02)
    assert [s for s in dict.fromkeys(seen) if s not in ("validating", "finalizing")] == ["in_progress", "completed"]
    assert batch["output_file_id"].startswith("file-")


INVALID: dict[str, tuple[Any, str]] = {
    "no custom_id": ({k: v for k, v in chat("a", "x").items() if k != "custom_id"}, "missing_required_parameter"),
    "no body": ({k: v for k, v in chat("a", "x").items() if k != "body"}, "missing_required_parameter"),
    "another method": ({**chat("a", "x"), "method": "GET"}, "invalid_method"),
    "another url": ({**chat("a", "x"), "url": "/v1/other"}, "invalid_url"),
    "no JSON": ("{nonsense", "invalid_json_line"),
}


def test_invalid_input_fails_the_batch_whose_error_says_what_is_wrong_and_where(way: Way, tmp_path: Path) -> None:
    lines = [line for line, _ in INVALID.values()]
    failed = ended(way, way.create(way.upload(write(tmp_path, chat("good", "fine"), *lines))["id"]))
    assert failed["status"] == "failed"
    assert [(e["code"], e["line"]) for e in failed["errors"]["data"]] == [
        (code, number) for number, (_, code) in enumerate(INVALID.values(), 2)
    ]
    assert failed["error"]["code"] == "missing_required_parameter"
    assert "custom_id" in failed["error"]["message"], "the message has the reason"
    assert not any(failed.get(file) for file in ("output_file_id", "error_file_id")), "nothing of it has run"


def test_a_batch_that_failed_is_raised_with_its_error(client: overnight.Client, tmp_path: Path) -> None:
    with pytest.raises(overnight.client.BatchFailed, match="The method of 'a' must be 'POST'") as raised:
        client.submit_batch(write(tmp_path, INVALID["another method"][0]))
    assert raised.value.batch["error"]["code"] == "invalid_method"


def test_a_batch_without_any_response_says_why_in_its_error(way: Way, tmp_path: Path) -> None:
    done = ended(way, way.create(way.upload(write(tmp_path, chat("a", "[status 400] x")))["id"]))
    assert done["error"]["code"] == "invalid_request"
    assert "not answered" in done["error"]["message"]


@pytest.mark.parametrize("url", [CHAT, "/v1/completions"])
def test_requests_are_for_chat_completions_or_completions(way: Way, tmp_path: Path, url: str) -> None:
    line = chat("a", "either url")
    if url != CHAT:
        line |= {"url": url, "body": {"model": "test-model", "prompt": "either url"}}
    done = ended(way, way.create(way.upload(write(tmp_path, line))["id"], endpoint=url))
    assert done["status"] == "completed"


# Parameters


def test_a_request_goes_before_the_batch_and_the_batch_before_the_server(
    way: Way, witness: Witness, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    name = request.node.callspec.id
    own = chat("own", f"own {name}", temperature=0.3, top_p=0.4, top_k=5)
    silent, null = chat("silent", f"silent {name}"), chat("null", f"null {name}", temperature=None)
    given: dict[str, Any] = {"temperature": 0.7, "top_p": 0.9, "top_k": 40}
    ended(way, way.create(way.upload(write(tmp_path, own, silent, null))["id"], **given))
    plain = chat("plain", f"plain {name}")
    ended(way, way.create(way.upload(write(tmp_path, plain))["id"]))

    fields = ("temperature", "top_p", "top_k")
    assert [sent(witness, f"own {name}")[f] for f in fields] == [0.3, 0.4, 5]
    assert [sent(witness, f"silent {name}")[f] for f in fields] == [0.7, 0.9, 40]
    assert sent(witness, f"null {name}")["temperature"] == 0.7
    assert not sent(witness, f"plain {name}").keys() & set(fields)


def test_an_output_limit_of_the_request_goes_before_that_of_the_batch(
    way: Way, witness: Witness, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    name = request.node.callspec.id
    lines = [
        chat("a", f"limit a {name}", max_tokens=11),
        chat("b", f"limit b {name}", max_completion_tokens=12),
        chat("c", f"limit c {name}"),
    ]
    ended(way, way.create(way.upload(write(tmp_path, *lines))["id"], max_decoding_length=13))
    bodies = [sent(witness, f"limit {n} {name}") for n in "abc"]
    limits = [(body.get("max_tokens"), body.get("max_completion_tokens")) for body in bodies]
    assert limits == [(11, None), (None, 12), (13, None)]


def test_a_request_without_any_output_limit_runs(way: Way, tmp_path: Path) -> None:
    done = ended(way, way.create(way.upload(write(tmp_path, chat("free", "no limit at all")))["id"]))
    assert (done["status"], done["request_counts"]["completed"]) == ("completed", 1)


@pytest.mark.parametrize(
    ("field", "wrong"),
    [("temperature", 2.5), ("top_p", 1.5), ("top_k", -1), ("max_decoding_length", 0), ("max_context_length", 0)],
)
def test_a_default_out_of_its_range_is_refused_by_its_name(
    http: httpx.Client, client: overnight.Client, tmp_path: Path, field: str, wrong: float
) -> None:
    file = client.upload_file(write(tmp_path, chat("a", "x")))
    response = http.post("/v1/batches", json={"input_file_id": file["id"], "endpoint": CHAT, field: wrong})
    assert (response.status_code, response.json()["error"]["param"]) == (400, field)


# Results


def test_a_line_of_the_output_has_every_field(way: Way, tmp_path: Path) -> None:
    done = ended(way, way.create(way.upload(write(tmp_path, chat("request-1", "[think] 2 + 2")))["id"]))
    (line,) = parsed(way.content(done["output_file_id"])).values()
    assert line.keys() == {"id", "custom_id", "response", "error"}
    assert (line["id"][:10], line["custom_id"], line["error"]) == ("batch_req_", "request-1", None)
    response = line["response"]
    assert response.keys() == {"status_code", "request_id", "body"}
    assert (response["status_code"], response["request_id"][:4]) == (200, "req_")
    body = response["body"]
    assert body.keys() >= {"id", "object", "created", "model", "choices", "usage"}
    assert (body["object"], body["model"]) == ("chat.completion", "test-model")
    (choice,) = body["choices"]
    assert (choice["index"], choice["finish_reason"]) == (0, "stop")
    message = {"role": "assistant", "content": "echo: [think] 2 + 2", "reasoning_content": "let me see"}
    assert choice["message"] == message
    assert body["usage"].keys() >= {"prompt_tokens", "completion_tokens", "total_tokens"}


def test_a_failed_request_has_its_error_in_place_of_a_response(way: Way, tmp_path: Path) -> None:
    lines = [chat("request-5", "[status 400] x"), chat("ok", "fine x")]
    done = ended(way, way.create(way.upload(write(tmp_path, *lines))["id"]))
    assert (done["status"], done["request_counts"]) == ("completed", {"total": 2, "completed": 1, "failed": 1})
    (good,) = parsed(way.content(done["output_file_id"])).values()
    (bad,) = parsed(way.content(done["error_file_id"])).values()
    assert (good["custom_id"], good["error"]) == ("ok", None)
    assert (bad["custom_id"], bad["response"]) == ("request-5", None)
    assert bad["error"]["code"] == "invalid_request"
    assert "told to answer 400" in bad["error"]["message"]


def test_results_are_found_by_custom_id_whatever_their_order(way: Way, witness: Witness, tmp_path: Path) -> None:
    name = tmp_path.name
    lines = [chat("last", f"[held {name}] ordered"), *(chat(f"r-{i}", f"unordered {i}") for i in range(10))]
    batch = way.create(way.upload(write(tmp_path, *lines))["id"])
    until_completed(way, batch, 10)
    witness.let(name)
    content = way.content(ended(way, batch)["output_file_id"])
    found = parsed(content)
    assert list(found)[-1] == "last"
    for line in lines:
        said = found[line["custom_id"]]["response"]["body"]["choices"][0]["message"]["content"]
        assert said == f"echo: {line['body']['messages'][0]['content']}"


def test_what_is_counted_as_completed_can_be_read_at_once(
    client: overnight.Client, http: httpx.Client, witness: Witness, tmp_path: Path
) -> None:
    lines = [chat(f"r-{i}", f"[slow {i % 10 / 10}] counted {i}") for i in range(39)]
    batch = client.create_batch(client.upload_file(write(tmp_path, *lines, chat("last", "[held counted] x")))["id"])
    counts = []
    while (now := client.get_batch(batch["id"]))["status"] != "completed":
        stored = http.get(f"/v1/batches/{batch['id']}/output.jsonl").content.count(b"\n")
        assert stored >= now["request_counts"]["completed"]
        counts.append(now["request_counts"]["completed"])
        if counts[-1] > 0:
            witness.let("counted")
        time.sleep(0.05)
    assert any(0 < count < 40 for count in counts), "some came before the others"


def test_results_can_be_read_while_they_come_and_are_the_file_in_the_end(
    way: Way, service: Served, witness: Witness, tmp_path: Path
) -> None:
    name = tmp_path.name
    lines = [chat(f"r-{i}", f"[slow {i % 10 / 7}] tailed {i}") for i in range(39)]
    batch = way.create(way.upload(write(tmp_path, *lines, chat("last", f"[held {name}] x")))["id"])
    path = service.folder / "incremental" / f"{batch['id']}.jsonl"
    seen = [b""]
    while way.get(batch["id"])["status"] != "completed":
        now = path.read_bytes() if path.exists() else b""
        assert now.startswith(seen[-1]), "it is appended to"
        assert now == b"" or now.endswith(b"\n"), "it holds whole lines"
        seen.append(now)
        if now:
            witness.let(name)
        time.sleep(0.05)
    content = way.content(way.get(batch["id"])["output_file_id"])
    assert any(0 < len(now) < len(content) for now in seen), "some came before the others"
    deadline = time.monotonic() + 180
    while path.read_bytes() != content and time.monotonic() < deadline:
        time.sleep(0.05)
    assert path.read_bytes() == content

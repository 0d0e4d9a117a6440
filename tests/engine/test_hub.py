"""Models by their Hugging Face id: from the cache where they are in it, else from the hub, else a clear sentence."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from overnight.engine import hub
from overnight.engine.errors import EngineError
from overnight.engine.model import resolve_model
from tests.tiny_model import write_tiny_model
from tests.tiny_transformers import write_tiny_llama

huggingface_hub = pytest.importorskip("huggingface_hub", reason="the package that reads ids is an extra")
REVISION = "0123456789abcdef0123456789abcdef01234567"
NOWHERE = "http://127.0.0.1:9"


def use(monkeypatch: pytest.MonkeyPatch, cache: Path, endpoint: str) -> None:
    """Point the package at a cache and a hub; it reads its environment once, when it is imported."""
    constants = import_module("huggingface_hub.constants")
    for module in (constants, import_module("huggingface_hub.file_download")):
        for name, value in (("ENDPOINT", endpoint), ("HF_HUB_CACHE", str(cache))):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, value)
    template = endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_PROGRESS_BARS", True)
    real = huggingface_hub.HfApi
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: real(endpoint=endpoint))
    snapshot = huggingface_hub.snapshot_download
    monkeypatch.setattr(
        huggingface_hub,
        "snapshot_download",
        lambda *args, **more: snapshot(*args, cache_dir=cache, endpoint=endpoint, **more),
    )


def cached(cache: Path, repository: str) -> Path:
    """The folder of a model's files in a cache laid out as the package does it."""
    kept = cache / f"models--{repository.replace('/', '--')}"
    (kept / "refs").mkdir(parents=True)
    (kept / "refs" / "main").write_text(REVISION)
    folder = kept / "snapshots" / REVISION
    folder.parent.mkdir()
    return folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no network."""
    folder = tmp_path / "hub"
    folder.mkdir()
    use(monkeypatch, folder, NOWHERE)
    return folder


def test_a_gguf_file_in_the_cache_is_used_without_a_network(cache: Path) -> None:
    folder = cached(cache, "someone/Tiny-GGUF")
    folder.mkdir()
    write_tiny_model(folder / "Tiny-Q4_K_M.gguf")
    write_tiny_model(folder / "Tiny-Q8_0.gguf")

    by_itself = resolve_model("someone/Tiny-GGUF")
    larger = resolve_model("someone/Tiny-GGUF:Q8_0")
    by_file = resolve_model("someone/Tiny-GGUF:Tiny-Q8_0.gguf")

    assert (by_itself.path.name, by_itself.id) == ("Tiny-Q4_K_M.gguf", "tiny")
    assert "someone/Tiny-GGUF" in by_itself.aliases
    assert larger.path == by_file.path
    assert larger.path.name == "Tiny-Q8_0.gguf"


def test_a_transformers_model_in_the_cache_is_called_by_its_own_name(cache: Path) -> None:
    write_tiny_llama(cached(cache, "someone/Tiny-Chat-1B"))

    found = resolve_model("someone/Tiny-Chat-1B")

    assert (found.id, found.is_gguf, found.context_length) == ("tiny-chat-1b", False, 512)
    assert found.aliases == ("Tiny-Chat-1B", "someone/Tiny-Chat-1B")


def test_without_a_network_a_model_that_is_not_in_the_cache_is_refused_with_what_to_do(cache: Path) -> None:
    cached(cache, "someone/Half-GGUF").mkdir()

    for named in ("someone/Other-GGUF", "someone/Half-GGUF:Q8_0"):
        with pytest.raises(EngineError) as told:
            resolve_model(named)
        assert str(told.value).startswith(f"{named.partition(':')[0]} is not in the cache ({cache}), and {NOWHERE}")
        assert str(told.value).endswith("Try again with a network, or name a file with --model.")


def test_a_model_whose_weights_are_half_there_is_not_taken_from_the_cache(cache: Path) -> None:
    folder = write_tiny_llama(cached(cache, "someone/Cut"))
    index = {"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))

    with pytest.raises(EngineError, match="is not in the cache"):
        resolve_model("someone/Cut")


@pytest.mark.parametrize(
    "tokenizer", ["tokenizer.json", "tokenizer.model", "vocab.txt", "qwen.tiktoken", "tekken.json"]
)
def test_a_model_without_a_tokenizer_is_not_taken_from_the_cache(cache: Path, tokenizer: str) -> None:
    folder = write_tiny_llama(cached(cache, "someone/Cut"))
    (folder / "tokenizer.json").unlink()

    with pytest.raises(EngineError, match="is not in the cache"):
        resolve_model("someone/Cut")

    (folder / tokenizer).write_text("{}")
    assert resolve_model("someone/Cut").path == folder


class Hub(BaseHTTPRequestHandler):
    """Answers for one repository as the hub does."""

    files: dict[str, bytes] = {}  # noqa: RUF012
    asked: list[str] = []  # noqa: RUF012
    withheld: str | None = None
    """A file that it does not give."""
    commit = REVISION

    def log_message(self, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path.startswith("/api/models/someone/Tiny-GGUF/tree/"):
            tree = [{"type": "file", "path": name, "size": len(self.files[name]), "oid": name} for name in self.files]
            return self.say(200, json.dumps(tree).encode())
        if path.startswith("/api/models/someone/Tiny-GGUF"):
            listed = [{"rfilename": name} for name in self.files]
            body = json.dumps({"id": "someone/Tiny-GGUF", "sha": self.commit, "siblings": listed}).encode()
            return self.say(200, body)
        name = path.rpartition("/")[2]
        if path.startswith("/someone/Tiny-GGUF/resolve/") and name == self.withheld:
            return self.say(403, b"{}")
        if path.startswith("/someone/Tiny-GGUF/resolve/") and name in self.files:
            self.asked.append(f"{self.command} {name}")
            return self.say(200, self.files[name], {"ETag": f'"{name}"', "X-Repo-Commit": self.commit})
        return self.say(404, b'{"error": "Repository not found"}', {"X-Error-Code": "RepoNotFound"})

    def say(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for key, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@pytest.fixture
def online(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A hub on loopback with one repository of three files."""
    model = write_tiny_model(tmp_path / "m.gguf").read_bytes()
    Hub.files = {"Tiny-Q4_K_M.gguf": model, "Tiny-F16.gguf": model, "README.md": b"about it"}
    Hub.asked, Hub.withheld, Hub.commit = [], None, REVISION
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    use(monkeypatch, tmp_path / "hub", f"http://127.0.0.1:{server.server_port}")
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub cannot be reached any more."""

    def fails(endpoint: str) -> None:
        raise OSError("no network")

    monkeypatch.setattr(hub, "_check_reachable", fails)


def test_what_is_not_in_the_cache_is_downloaded_once_and_only_what_is_needed(online: str) -> None:
    first = resolve_model("someone/Tiny-GGUF:F16")
    again = resolve_model("someone/Tiny-GGUF:F16")

    assert first == again
    assert first.path.exists()
    assert Hub.asked.count("GET Tiny-F16.gguf") == 1
    assert {one.partition(" ")[2] for one in Hub.asked} == {"Tiny-F16.gguf"}


@pytest.mark.parametrize("is_gguf", [True, False], ids=["GGUF", "Transformers"])
def test_what_was_downloaded_once_needs_no_network_again(
    online: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_gguf: bool
) -> None:
    named = "someone/Tiny-GGUF:F16" if is_gguf else "someone/Tiny-GGUF"
    if not is_gguf:
        folder = write_tiny_llama(tmp_path / "whole")
        Hub.files = {"README.md": b"about it", **{file.name: file.read_bytes() for file in folder.iterdir()}}
    first = resolve_model(named)
    no_network(monkeypatch)

    assert resolve_model(named) == first


def test_a_download_that_was_cut_is_completed_whatever_it_left_out(online: str, tmp_path: Path) -> None:
    folder = write_tiny_llama(tmp_path / "whole")
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    Hub.files = {file.name: file.read_bytes() for file in folder.iterdir()}
    Hub.withheld = "chat_template.jinja"
    with pytest.raises(EngineError, match="cannot be used"):
        resolve_model("someone/Tiny-GGUF")
    Hub.withheld = None

    found = resolve_model("someone/Tiny-GGUF")
    asked = len(Hub.asked)
    again = resolve_model("someone/Tiny-GGUF")

    assert {file.name for file in found.path.iterdir()} == set(Hub.files)
    assert again == found
    assert len(Hub.asked) == asked


def test_a_cut_download_of_one_revision_leaves_another_whole(
    online: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_tiny_llama(tmp_path / "whole")
    Hub.files = {file.name: file.read_bytes() for file in folder.iterdir()}
    first = resolve_model("someone/Tiny-GGUF")
    Hub.files["more.json"] = b"{}"
    Hub.withheld, Hub.commit = "more.json", "f" * 40
    with pytest.raises(EngineError, match="cannot be used"):
        resolve_model("someone/Tiny-GGUF@refs/pr/2")
    no_network(monkeypatch)

    assert resolve_model("someone/Tiny-GGUF") == first


def test_a_model_that_does_not_exist_is_told_from_a_network_that_fails(online: str) -> None:
    with pytest.raises(EngineError, match=rf"no model someone/Nothing on {online}.*set HF_TOKEN"):
        resolve_model("someone/Nothing")


def test_weights_that_a_repository_does_not_have_are_refused_with_those_it_has(online: str) -> None:
    with pytest.raises(EngineError, match=r"someone/Tiny-GGUF holds no GGUF file Q2_K \(Tiny-F16\.gguf, Tiny-Q4_K_M"):
        resolve_model("someone/Tiny-GGUF:Q2_K")


FILES = ["a-00001-of-00002.gguf", "a-00002-of-00002.gguf"]


@pytest.mark.parametrize(
    ("files", "wanted", "chosen"),
    [
        (["README.md"], None, None),
        (["one.gguf", "mmproj-one.gguf"], None, ["one.gguf"]),
        (["m-Q8_0.gguf", "m-Q4_0.gguf", "m-Q2_K.gguf"], None, ["m-Q4_0.gguf"]),
        (["m-Q8_0.gguf", "m.IQ8_0.gguf"], "q8_0", ["m-Q8_0.gguf"]),
        (["big/m-F16.gguf", "m-Q4_0.gguf"], "big/m-F16.gguf", ["big/m-F16.gguf"]),
        (FILES, None, FILES),
    ],
)
def test_the_files_to_take_are_chosen_by_name(files: list[str], wanted: str | None, chosen: list[str] | None) -> None:
    assert hub.choose(files, wanted) == chosen


def test_where_it_is_not_clear_which_of_several_is_meant_they_are_listed() -> None:
    with pytest.raises(EngineError, match=r"holds several models.*\(m-Q2_K\.gguf, m-Q3_K\.gguf\)"):
        hub.choose(["m-Q3_K.gguf", "m-Q2_K.gguf"], None)

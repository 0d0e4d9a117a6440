"""Models by their Hugging Face id: from the cache where they are in it, else downloaded into it."""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from overnight.engine.errors import EngineError

HUB_ID = re.compile(
    r"(?P<repository>[A-Za-z0-9][\w.-]*/[\w.-]+?)(?::(?P<wanted>[\w./-]+))?(?:@(?P<revision>[\w./-]+))?"
)
FIRST_CHOICES = ("Q4_K_M", "Q4_0", "Q8_0")
"""Of several weights of one model, where none is named: small, and hardly worse."""
CONNECT_WITHIN = 10.0
PART = re.compile(r"-(\d{5})-of-(\d{5})(?=\.gguf$)", re.IGNORECASE)
TRANSFORMERS = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja", "*.py", "*.tiktoken", "tokenizer*")
"""What a Transformers model needs; repositories often hold the same weights in other forms beside it."""
TOKENIZERS = ("tokenizer.json", "*.model", "vocab.*", "*.tiktoken", "tekken.json")
"""One of these tells how it reads text."""
UNFINISHED = ".overnight-unfinished"
"""In a model's folder of the cache, while we download it: a file that is missing is missed by nobody else."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A file or folder in the cache, and the repository that it comes from."""

    path: Path
    repository: str


def is_hub_id(named: str) -> bool:
    """Whether it has the form `owner/name`, with `:Q4_K_M` or `:file.gguf` behind it where one of several is meant."""
    return HUB_ID.fullmatch(named) is not None


def fetch(named: str) -> Fetched:
    """The GGUF file or the folder of the Transformers model of that id. Raises EngineError with what to do."""
    match = HUB_ID.fullmatch(named)
    if match is None:
        raise EngineError(f"{named} is not a Hugging Face id such as Qwen/Qwen3-0.6B-GGUF:Q8_0.")
    try:
        # The package is an extra: whoever names files needs none of it.
        import huggingface_hub
        import huggingface_hub.constants
        import huggingface_hub.errors
    except ImportError:
        raise EngineError(
            f"{named} looks like a Hugging Face id, and the package that reads those is missing:"
            " run pip install 'overnight[engine]', or name a file."
        ) from None
    repository, wanted, revision = match["repository"], match["wanted"], match["revision"]
    cached = _from_cache(huggingface_hub, repository, wanted, revision)
    return Fetched(cached or _from_hub(huggingface_hub, repository, wanted, revision), repository)


def choose(files: Iterable[str], wanted: str | None) -> list[str] | None:
    """The GGUF files to take of a repository, those of one model cut into parts in order; None where it has none.

    EngineError, the end of a sentence, where it is not clear which.
    """
    ggufs = sorted(f for f in files if f.lower().endswith(".gguf") and "mmproj" not in PurePosixPath(f).name.lower())
    models = [f for f in ggufs if (part := PART.search(f)) is None or int(part[1]) == 1]
    if wanted is not None:
        models = [f for f in models if f == wanted or PurePosixPath(f).name == wanted] or [
            f for f in models if _is_weight_type(f, wanted)
        ]
        if not models:
            raise EngineError(f"holds no GGUF file {wanted}{_list(ggufs)}")
    if not models:
        return None
    first = next((f for one in FIRST_CHOICES for f in models if _is_weight_type(f, one)), None)
    chosen = models[0] if len(models) == 1 else first if wanted is None else None
    if chosen is None:
        raise EngineError(f"holds several models; put a colon and the name of one behind it{_list(models)}")
    part = PART.search(chosen)
    return [chosen] if part is None else [f for f in ggufs if PART.sub("", f) == PART.sub("", chosen)]


def _is_weight_type(file: str, wanted: str) -> bool:
    stem = PART.sub("", PurePosixPath(file).name)[: -len(".gguf")].lower()
    return stem == wanted.lower() or re.search(rf"[.-]{re.escape(wanted.lower())}$", stem) is not None


def _list(files: list[str]) -> str:
    return f" ({', '.join(files[:20])})" if files else ""


def _from_cache(hub: Any, repository: str, wanted: str | None, revision: str | None) -> Path | None:
    try:
        # With patterns that no file fits, since newer versions of the package miss those that we don't need.
        folder = Path(hub.snapshot_download(repository, revision=revision, local_files_only=True, allow_patterns=[]))
    except (OSError, ValueError):
        return None
    files = [file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()]
    try:
        chosen = choose(files, wanted)
    except EngineError:
        # What was asked for may be one of those that are not in the cache.
        return None
    if chosen is None:
        is_cut = wanted is not None or _mark(hub, repository, revision).exists() or not _is_whole(folder, files)
        return None if is_cut else folder
    part = PART.search(chosen[0])
    return folder / chosen[0] if part is None or len(chosen) == int(part[2]) else None


def _is_whole(folder: Path, files: list[str]) -> bool:
    """Whether a Transformers model has all its weights and a tokenizer; a download that was cut leaves some out."""
    if "config.json" not in files or not any(fnmatch(file, one) for file in files for one in TOKENIZERS):
        return False
    if "model.safetensors.index.json" in files:
        parts = set(re.findall(r'"([^"]+\.safetensors)"', (folder / "model.safetensors.index.json").read_text()))
        return parts <= set(files)
    return any(file.endswith(".safetensors") for file in files)


def _from_hub(hub: Any, repository: str, wanted: str | None, revision: str | None) -> Path:
    try:
        _check_reachable(hub.constants.ENDPOINT)
        files = hub.HfApi().list_repo_files(repository, revision=revision)
        try:
            chosen = choose(files, wanted)
        except EngineError as error:
            raise EngineError(f"The repository {repository} {error}.") from None
        if chosen is None and not any(fnmatch(file, "*.safetensors") for file in files):
            raise EngineError(f"The repository {repository} holds neither a GGUF file nor weights in safetensors.")
        if chosen is None:
            return _all_of(hub, repository, revision)
        return Path(hub.snapshot_download(repository, revision=revision, allow_patterns=chosen)) / chosen[0]
    except (hub.errors.RepositoryNotFoundError, hub.errors.RevisionNotFoundError):
        raise EngineError(
            f"There is no model {repository} on {hub.constants.ENDPOINT}, or it is not for everyone."
            " Check its name; for one that is yours, set HF_TOKEN."
        ) from None
    except (hub.errors.HfHubHTTPError, OSError, RuntimeError, *_network_errors()) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        raise EngineError(
            f"{repository} is not in the cache ({hub.constants.HF_HUB_CACHE}), and {hub.constants.ENDPOINT} cannot be"
            f" used ({why}). Try again with a network, or name a file with --model."
        ) from error


def _all_of(hub: Any, repository: str, revision: str | None) -> Path:
    """The folder of a Transformers model, with a mark beside it for as long as something of it may be missing."""
    mark = _mark(hub, repository, revision)
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.touch()
    folder = Path(hub.snapshot_download(repository, revision=revision, allow_patterns=list(TRANSFORMERS)))
    mark.unlink(missing_ok=True)
    return folder


def _mark(hub: Any, repository: str, revision: str | None) -> Path:
    name = UNFINISHED if revision is None else f"{UNFINISHED}-{revision.replace('/', '--')}"
    return Path(hub.constants.HF_HUB_CACHE) / f"models--{repository.replace('/', '--')}" / name


def _check_reachable(endpoint: str) -> None:
    """Raise OSError where nothing answers there: the package would try for half a minute. A proxy is left to it."""
    address = urlsplit(endpoint)
    if getproxies().get(address.scheme) and not proxy_bypass(address.hostname or ""):
        return
    port = address.port or (443 if address.scheme == "https" else 80)
    socket.create_connection((address.hostname or "", port), timeout=CONNECT_WITHIN).close()


def _network_errors() -> tuple[type[Exception], ...]:
    """Those of the clients that the package has used over time; none of them is an OSError."""
    clients = (sys.modules.get(name) for name in ("httpx", "httpx2"))
    return tuple(client.HTTPError for client in clients if client is not None)

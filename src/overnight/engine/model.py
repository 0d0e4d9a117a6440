"""Finds the file behind `--model` and what a request may call it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from pathlib import Path

from overnight.engine.errors import EngineError
from overnight.engine.gguf_header import Value, read_gguf_header

ENCODERS = frozenset(
    {
        "bert",
        "eurobert",
        "gemma-embedding",
        "jina-bert-v2",
        "jina-bert-v3",
        "llama-embed",
        "modern-bert",
        "neo-bert",
        "nomic-bert",
        "nomic-bert-moe",
        "t5encoder",
    }
)
"""Architectures, as GGUF files name them, that turn text into vectors and cannot write any."""
RANKING = 4
"""The pooling type of models that score pairs of texts."""

PACKAGE_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
PART = re.compile(r"-(\d{5})-of-\d{5}$")
WEIGHT_TYPE = re.compile(r"[.-](?:ud-)?(?:i?q\d\w*|tq\d\w*|bf16|fp?16|fp?32|mxfp4\w*)$", re.IGNORECASE)
LONGEST_ALIAS = 200


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A model that a local engine can load, as its file describes it."""

    path: Path
    id: str
    aliases: tuple[str, ...]
    """Other names that requests may use; `id` is not among them."""
    context_length: int | None
    """Tokens the model was trained for; None when the file does not say."""
    embedding: bool
    """It turns text into vectors and serves nothing else."""
    chat_template: bool
    pooling: bool = False
    """The file says how its vectors are pooled."""


def resolve_model(named: str) -> ModelFile:
    """The model behind `--model`: a GGUF file, a folder with exactly one, or an installed model package.

    Raises EngineError with what to do instead.
    """
    try:
        path = Path(named).expanduser()
        if named and path.exists():
            return read_model(_only_model_in(path) if path.is_dir() else path)
    except (OSError, RuntimeError, ValueError) as error:
        raise EngineError(f"The model {named[:200]!r} cannot be looked up: {str(error).rstrip('.')}.") from error
    if path.suffix.lower() == ".gguf" or named.startswith((".", "/", "~", "\\")):
        raise EngineError(f"There is no file {named}. Name an existing GGUF file with --model.")
    package = _installed(named)
    if package is not None:
        return _model_of_package(package)
    if HUB_ID.fullmatch(named):
        raise EngineError(
            f"{named} looks like a Hugging Face id, and models are not fetched from there yet."
            " Download its GGUF file and give the path of the file."
        )
    raise EngineError(
        f"No model {named[:200]!r} was found: it is not a file, not a folder and not an installed model package."
    )


def default_model() -> ModelFile | None:
    """The model of the one installed package that carries one; None without such a package.

    Raises EngineError when several are installed, or when the file of the only one cannot be used.
    """
    packages = {_name(package): package for package in distributions() if len(_models_of(package)) == 1}
    if len(packages) > 1:
        raise EngineError(
            f"Several model packages are installed: {', '.join(sorted(packages))}. Name one with --model."
        )
    return next((_model_of_package(package) for package in packages.values()), None)


def read_model(path: Path) -> ModelFile:
    """What the header of a GGUF file says about its model. Raises EngineError that names the file."""
    header = read_gguf_header(path)
    architecture = header.get("general.architecture")
    if not isinstance(architecture, str) or not architecture:
        raise EngineError(f"{path} is not a usable GGUF file: it does not name its architecture.")
    pooling = _whole(header.get(f"{architecture}.pooling_type")) or 0
    if pooling == RANKING:
        raise EngineError(f"{path} holds a model that ranks texts; there is no endpoint for such models.")
    stem = PART.sub("", path.stem)
    id_ = model_id(stem)
    template = header.get("tokenizer.chat_template")
    return ModelFile(
        path=path.resolve(),
        id=id_,
        aliases=_aliases(id_, WEIGHT_TYPE.sub("", stem), stem, header.get("general.name")),
        context_length=_whole(header.get(f"{architecture}.context_length")) or None,
        embedding=architecture in ENCODERS or pooling > 0,
        chat_template=isinstance(template, str) and bool(template),
        pooling=pooling > 0,
    )


def model_id(stem: str) -> str:
    """The id made of a file's name without its ending: lower case, hyphens, without the type of the weights.

    >>> model_id("SmolLM2-135M-Instruct.Q4_1")
    'smollm2-135m-instruct'
    """
    bare = WEIGHT_TYPE.sub("", stem)
    words = re.findall(r"[^\W_]+(?:\.\d[^\W_]*)*", bare.lower())
    return "-".join(words) or "model"


def _aliases(id_: str, *names: Value | None) -> tuple[str, ...]:
    texts = (name.strip() for name in names if isinstance(name, str))
    usable = (text for text in texts if text.isprintable() and 0 < len(text) <= LONGEST_ALIAS and text != id_)
    return tuple(dict.fromkeys(usable))


def _whole(value: Value | None) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _only_model_in(folder: Path) -> Path:
    files = sorted(file for file in folder.iterdir() if file.suffix.lower() == ".gguf" and file.is_file())
    # A model cut into parts is opened by its first one; the engine finds the rest.
    firsts = [file for file in files if (part := PART.search(file.stem)) is None or int(part[1]) == 1]
    match firsts:
        case [file]:
            return file
        case []:
            raise EngineError(f"The folder {folder} holds no GGUF file.")
        case _:
            names = ", ".join(file.name for file in firsts[:20])
            raise EngineError(f"The folder {folder} holds several models: {names}. Name one of them.")


def _installed(named: str) -> Distribution | None:
    if not PACKAGE_NAME.fullmatch(named):
        return None
    try:
        return distribution(named)
    except PackageNotFoundError:
        return None


def _model_of_package(package: Distribution) -> ModelFile:
    models = _models_of(package)
    if len(models) != 1:
        raise EngineError(
            f"The installed package {_name(package)} holds {len(models) or 'no'} GGUF files instead of one."
            " Name a file with --model."
        )
    model = read_model(models[0])
    return replace(model, aliases=_aliases(model.id, *model.aliases, _name(package)))


def _models_of(package: Distribution) -> list[Path]:
    """Found through the package's list of files: importing it would load whatever it depends on."""
    files = package.files or []
    return [Path(str(package.locate_file(file))) for file in files if file.suffix.lower() == ".gguf"]


def _name(package: Distribution) -> str:
    return str(package.metadata["Name"])

"""Finds the model behind `--model` and what a request may call it."""

from __future__ import annotations

import glob
import re
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from importlib.metadata import Distribution
from pathlib import Path

from overnight.engine.cost import Cost, read_cost
from overnight.engine.errors import EngineError
from overnight.engine.gguf_header import Value, read_gguf_header
from overnight.engine.hub import fetch, is_hub_id
from overnight.engine.installed import find_package, model_packages, models_in, name_of
from overnight.engine.transformers_folder import is_transformers, read_facts

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

PART = re.compile(r"-(\d{5})-of-\d{5}$")
WEIGHT_TYPE = re.compile(r"[.-](?:ud-)?(?:i?q\d\w*|tq\d\w*|bf16|fp?16|fp?32|mxfp4\w*)$", re.IGNORECASE)
LONGEST_ALIAS = 200


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A model that a local engine can load, as its files describe it."""

    path: Path
    """A GGUF file, or the folder of a Transformers model."""
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
    template: str = field(default="", repr=False)
    """The text of a GGUF file's chat templates."""
    cost: Cost = field(default_factory=Cost)
    is_gguf: bool = True
    """Else it is a Transformers model: a folder with `config.json`, weights and a tokenizer."""


def resolve_model(named: str) -> ModelFile:
    """The model behind `--model`.

    A GGUF file, a folder with exactly one or with a Transformers model, an installed model package or the id of the
    model in it, or a Hugging Face id. Raises EngineError with what to do instead.
    """
    try:
        path = Path(named).expanduser()
        if named and path.exists():
            return read_folder(path) if path.is_dir() else read_model(path)
    except (OSError, RuntimeError, ValueError) as error:
        raise EngineError(f"The model {named[:200]!r} cannot be looked up: {str(error).rstrip('.')}.") from error
    if (path.suffix.lower() == ".gguf" and ":" not in named) or named.startswith((".", "/", "~", "\\")):
        raise EngineError(f"There is no file {named}. Name an existing GGUF file with --model.{_suggest(named)}")
    package = find_package(named) or _package_with(named)
    if package is not None:
        return _model_of_package(package)
    if is_hub_id(named):
        return _model_of_hub(named)
    raise EngineError(
        f"No model {named[:200]!r} was found: it is not a file, not a folder, and neither an installed model package"
        f" nor a model in one.{_suggest(named)} A model of Hugging Face is named with its owner, such as"
        " Qwen/Qwen3-0.6B-GGUF:Q8_0."
    )


def default_model() -> ModelFile | None:
    """The model of the one installed package that carries a GGUF file; None without such a package.

    Raises EngineError when several are installed, or when the file of the only one cannot be used.
    """
    packages = {name: package for name, (package, model) in model_packages().items() if model.suffix.lower() == ".gguf"}
    if len(packages) > 1:
        raise EngineError(
            f"Several model packages are installed: {', '.join(sorted(packages))}. Name one with --model."
        )
    return next((_model_of_package(package) for package in packages.values()), None)


def read_folder(folder: Path) -> ModelFile:
    """The one model of a folder. Raises EngineError that names the folder."""
    file = _only_model_in(folder)
    return read_model(file) if file is not None else read_transformers(folder)


def read_transformers(folder: Path) -> ModelFile:
    """What the files of a Transformers model say about it. Raises EngineError that names the folder."""
    facts = read_facts(folder)
    name = folder.resolve().name
    id_ = model_id(name)
    return ModelFile(
        path=folder.resolve(),
        id=id_,
        aliases=_aliases(id_, name),
        context_length=facts.context_length,
        embedding=facts.embedding,
        chat_template=facts.chat_template,
        is_gguf=False,
    )


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
    embedding = architecture in ENCODERS or pooling > 0
    texts = (template, header.get("tokenizer.chat_template.tool_use"))
    return ModelFile(
        path=path.resolve(),
        id=id_,
        aliases=_aliases(id_, WEIGHT_TYPE.sub("", stem), stem, header.get("general.name")),
        context_length=_whole(header.get(f"{architecture}.context_length")) or None,
        embedding=embedding,
        chat_template=isinstance(template, str) and bool(template),
        pooling=pooling > 0,
        template="\n".join(text for text in texts if isinstance(text, str)),
        cost=read_cost(header, architecture, _size(path), embeds=embedding, encodes=architecture in ENCODERS),
    )


def _size(path: Path) -> int:
    """Bytes of a model's file, or of all files that it lies in."""
    part = PART.search(path.stem)
    files = path.parent.glob(f"{glob.escape(path.stem[: part.start()])}-*.gguf") if part else [path]
    return sum(file.stat().st_size for file in files)


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


def _model_of_hub(named: str) -> ModelFile:
    found = fetch(named)
    model = read_model(found.path) if found.path.is_file() else read_transformers(found.path)
    name = found.repository.partition("/")[2]
    # A folder of the cache is named after a revision, which nobody would call a model.
    id_ = model.id if model.is_gguf else model_id(name)
    return replace(
        model, id=id_, aliases=_aliases(id_, *(model.aliases if model.is_gguf else ()), name, found.repository, named)
    )


def _only_model_in(folder: Path) -> Path | None:
    """Its GGUF file; None where it holds a Transformers model."""
    files = sorted(file for file in folder.iterdir() if file.suffix.lower() == ".gguf" and file.is_file())
    # A model cut into parts is opened by its first one; the engine finds the rest.
    firsts = [file for file in files if (part := PART.search(file.stem)) is None or int(part[1]) == 1]
    match firsts:
        case [file]:
            return file
        case [] if is_transformers(folder):
            return None
        case []:
            raise EngineError(
                f"The folder {folder} holds no model: neither a GGUF file nor a config.json with weights."
            )
        case _:
            names = ", ".join(file.name for file in firsts[:20])
            raise EngineError(f"The folder {folder} holds several models: {names}. Name one of them.")


def _package_with(id_: str) -> Distribution | None:
    """The one installed package whose model is called so."""
    if not id_ or "/" in id_:
        return None
    found = [package for package, model in model_packages().values() if _id_in(package, model) == model_id(id_)]
    return found[0] if len(found) == 1 else None


def _id_in(package: Distribution, model: Path) -> str:
    # The folder in a package is called `model` or the like.
    return model_id(PART.sub("", model.stem) if model.suffix.lower() == ".gguf" else name_of(package))


def _suggest(named: str) -> str:
    """What may have been meant, as a sentence: files beside it, or what is installed."""
    path = Path(named)
    try:
        beside = [str(file) for file in path.parent.iterdir() if file.suffix.lower() == ".gguf" or file.is_dir()]
    except (OSError, ValueError):
        beside = []
    installed = [name for name, (package, model) in model_packages().items() for name in (name, _id_in(package, model))]
    close = get_close_matches(named[:LONGEST_ALIAS], [*beside, *installed], n=3, cutoff=0.5)
    if close:
        return f" Did you mean {' or '.join(close)}?"
    return f" Installed are: {', '.join(sorted(set(installed))[:20])}." if installed else ""


def _model_of_package(package: Distribution) -> ModelFile:
    models = models_in(package)
    if len(models) != 1:
        raise EngineError(
            f"The installed package {name_of(package)} holds {len(models) or 'no'} models instead of one."
            " Name a file or folder with --model."
        )
    if models[0].is_file():
        model = read_model(models[0])
        return replace(model, aliases=_aliases(model.id, *model.aliases, name_of(package)))
    model, id_ = read_transformers(models[0]), _id_in(package, models[0])
    return replace(model, id=id_, aliases=_aliases(id_, name_of(package)))

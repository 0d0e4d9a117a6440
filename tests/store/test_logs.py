"""Logs of the embedded server stay small while others keep writing to them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from overnight.store.logs import bound, open_log


def test_a_log_that_grew_too_large_is_moved_aside_under_its_writer(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    writer = open_log(log)
    os.write(writer, b"old" * 10)
    os.write(writer, b"x" * 100)
    bound(log, largest=100)
    os.write(writer, b"new\n")
    os.close(writer)
    assert log.read_bytes() == b"new\n"
    assert (tmp_path / "a.log.1").read_bytes() == b"x" * 100


def test_a_small_log_is_left_alone(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"x" * 100)
    bound(log, largest=100)
    assert log.read_bytes() == b"x" * 100
    assert not (tmp_path / "a.log.1").exists()


def test_only_one_older_log_is_kept(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    for letter in (b"a", b"b"):
        log.write_bytes(letter * 200)
        bound(log, largest=100)
    assert (tmp_path / "a.log.1").read_bytes() == b"b" * 100
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.log", "a.log.1"]


def test_a_log_that_cannot_be_moved_aside_is_emptied_all_the_same(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"x" * 200)
    (tmp_path / "a.log.1").mkdir()
    bound(log, largest=100)
    assert log.read_bytes() == b""


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "theirs").touch()
    (tmp_path / "a.log").symlink_to(tmp_path / "theirs")
    with pytest.raises(OSError, match="symbolic links"):
        open_log(tmp_path / "a.log")

"""Reads the pages of the documentation: their code blocks, links, and the commands that they show."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
GUIDES = sorted((ROOT / "docs" / "how-to").glob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

_FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.M | re.S)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.M)
_COMMAND = re.compile(r"(?:^\s*|[|;&(]\s*|bin/)overnight (?=[a-z-])")
RUNS = "run"
"""The word behind a block's language that has the tests run it, with the other blocks of the page in that language."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of code; `runs` says that its page promises that it can be run as it stands."""

    language: str
    runs: bool
    code: str


def blocks(page: Path) -> list[Block]:
    """The blocks of a page in their order."""
    found = []
    for info, code in _FENCE.findall(page.read_text("utf-8")):
        language, *marks = info.split() or [""]
        found.append(Block(language, RUNS in marks, code))
    return found


def program(page: Path, language: str) -> str:
    """All blocks of a page in one language that run, one after the other."""
    return "\n".join(block.code for block in blocks(page) if block.language == language and block.runs)


def broken_links(page: Path) -> list[str]:
    """The links of a page to files, or headings in them, that are not there."""
    return [link for link in _LINK.findall(_FENCE.sub("", page.read_text("utf-8"))) if not _resolves(page, link)]


def _resolves(page: Path, link: str) -> bool:
    if re.match(r"[a-z]+:", link):
        return True
    name, _, anchor = link.partition("#")
    target = (page.parent / name).resolve() if name else page
    if not target.exists():
        return False
    return not anchor or anchor in {_anchor(heading) for heading in _HEADING.findall(target.read_text("utf-8"))}


def _anchor(heading: str) -> str:
    """As GitHub names a heading: lower case, blanks to dashes, without other signs."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def commands(page: Path) -> Iterator[list[str]]:
    """The words behind `overnight` of every command in a file: of a page, those for a shell and those in the text."""
    text = page.read_text("utf-8")
    if page.suffix != ".md":
        for line in text.splitlines():
            yield from _commands_in(line)
        return
    for block in blocks(page):
        if block.language in ("sh", "console"):
            for line in block.code.replace("\\\n", " ").splitlines():
                yield from _commands_in(line)
    for code in re.findall(r"`([^`\n]+)`", _FENCE.sub("", text)):
        if code.startswith("overnight "):
            yield from _commands_in(code)


def _commands_in(line: str) -> Iterator[list[str]]:
    for match in _COMMAND.finditer(line):
        lexer = shlex.shlex(line[match.end() :], posix=True, punctuation_chars="|;&)>")
        lexer.whitespace_split = True
        words = []
        for word in lexer:
            if word[0] in "|;&)>":
                break
            words.append(word)
        yield words


def complaint(root: Any, words: list[str]) -> str | None:
    """What the command line has against these words; None where it knows the command and its options."""
    command, left = root, list(words)
    while (below := getattr(command, "commands", None)) and left and not left[0].startswith("-"):
        if left[0] not in below:
            return f"no command {left[0]}"
        command = below[left.pop(0)]
    options = {name: param for param in command.params for name in (*param.opts, *param.secondary_opts)}
    while left:
        word = left.pop(0)
        name, _, value = word.partition("=")
        if not word.startswith("-") or word in ("-", "-h", "--help"):
            continue
        if name not in options:
            return f"no option {name}"
        if not value and not options[name].is_flag and not (left and left.pop(0)):
            return f"{name} takes a value"
    return None

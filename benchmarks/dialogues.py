"""Requests made of a public corpus: chats of people in 28 languages, that `chatterbot-corpus` (BSD) ships as YAML.

The extra `bench` installs it; only the files inside the package are read. The same arguments give the same requests.
"""

from __future__ import annotations

import importlib.util
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

CHAT = "/v1/chat/completions"
TOPICS = 12
"""How many topics have a system prompt that their requests share."""
EXAMPLES = 5
OUTPUTS = (8, 12, 16)
"""Tokens that an answer may have; short, so that thousands of them can be waited for."""

Message = dict[str, str]


@dataclass(frozen=True, slots=True)
class Exchange:
    """What somebody said and the first answer to it, and where in the corpus that stands."""

    language: str
    topic: str
    said: str
    answered: str


def read() -> list[Exchange]:
    """Every exchange of the corpus, in the order of its files."""
    found = importlib.util.find_spec("chatterbot_corpus")
    if found is None or found.origin is None:
        raise SystemExit(
            "The questions are in a package: `make bench-dataset` or pip install 'overnight[bench]' brings it."
        )
    exchanges = []
    for file in sorted((Path(found.origin).parent / "data").glob("*/*.yml")):
        for turns in yaml.safe_load(file.read_text(encoding="utf-8"))["conversations"]:
            said = [str(turn).strip() for turn in turns]
            if len(said) > 1 and all(said[:2]):
                exchanges.append(Exchange(file.parent.name, file.stem, said[0], said[1]))
    return exchanges


def requests(count: int, model: str) -> list[dict[str, Any]]:
    """The lines of an input file: two in five are a question alone, two share a system prompt, one is a dialogue."""
    draw = random.Random(2000)
    exchanges = read()
    alone = ([user(exchange.said)] for exchange in _drawn(draw, exchanges))
    shared, dialogues = _with_system_prompts(draw, exchanges), _dialogues(draw, exchanges)
    kinds = [("alone", alone), ("shared", shared), ("alone", alone), ("shared", shared), ("dialogue", dialogues)]
    made = []
    for number in range(count):
        kind, messages = kinds[number % len(kinds)]
        # Both names of the limit are in use among callers.
        limit = "max_completion_tokens" if number % 2 else "max_tokens"
        body = {"model": model, "messages": next(messages), limit: draw.choice(OUTPUTS)}
        made.append({"custom_id": f"{kind}-{number}", "method": "POST", "url": CHAT, "body": body})
    draw.shuffle(made)
    return made


def write(file: Path, lines: list[dict[str, Any]]) -> None:
    """As JSONL in UTF-8, each character as it is."""
    file.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")


def user(text: str) -> Message:
    """What a user says."""
    return {"role": "user", "content": text}


def _drawn(draw: random.Random, exchanges: list[Exchange]) -> Iterator[Exchange]:
    """All of them in a random order, again and again."""
    while True:
        yield from draw.sample(exchanges, len(exchanges))


def _with_system_prompts(draw: random.Random, exchanges: list[Exchange]) -> Iterator[list[Message]]:
    """Questions of the largest topics, each behind its topic's instructions with examples."""
    topics: dict[tuple[str, str], list[Exchange]] = {}
    for exchange in exchanges:
        topics.setdefault((exchange.language, exchange.topic), []).append(exchange)
    largest = sorted(topics, key=lambda topic: len(topics[topic]), reverse=True)[:TOPICS]
    asked = []
    for language, topic in largest:
        examples = topics[language, topic][:EXAMPLES]
        told = "\n".join(f"- {one.said} -> {one.answered}"[:120] for one in examples)
        system = f"You answer questions about {topic} in {language}, briefly. Answer as in these examples:\n{told}"
        asked.append((system, _drawn(draw, topics[language, topic][EXAMPLES:])))
    while True:
        system, questions = draw.choice(asked)
        yield [{"role": "system", "content": system}, user(next(questions).said)]


def _dialogues(draw: random.Random, exchanges: list[Exchange]) -> Iterator[list[Message]]:
    """One to four exchanges that stand beside each other in the corpus, and what is said next."""
    while True:
        length = draw.randint(1, 4)
        first = draw.randrange(len(exchanges) - length)
        messages = []
        for one in exchanges[first : first + length]:
            messages += [user(one.said), {"role": "assistant", "content": one.answered}]
        yield [*messages, user(exchanges[first + length].said)]

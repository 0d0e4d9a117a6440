"""One request that the local engine dies of each time: a deployment of its own, with a real process and supervisor."""

from __future__ import annotations

import random
from pathlib import Path

from tests.engine.drivers import write_stand_in
from tests.faults.tries import DEADLY
from tests.process import Served, chat
from tests.tiny_transformers import write_tiny_llama

SLOTS = 16
REQUESTS = 120
WITHIN = 240.0


def poison(folder: Path, chance: random.Random) -> None:
    """It fails when the engine has died of it so often, the last time alone, and it alone fails.

    The engine is what stands in for vLLM. It dies as that does, telling all that it worked on, or without a word, as
    by kill -9.
    """
    folder.mkdir(parents=True, exist_ok=True)
    deadly = chance.choice(["die", "vanish"])
    place = chance.randrange(REQUESTS)
    lines = [chat(f"r-{i}", "wait a moment" if i != place else f"wait and {deadly}") for i in range(REQUESTS)]
    options = ["--model", str(write_tiny_llama(folder / "test-model")), "--vllm", str(write_stand_in(folder))]
    options += ["--engine", "vllm", f"--engine-arg=--max-num-seqs={SLOTS}"]
    with Served(folder / "data", *options) as service:
        ended = service.wait(service.submit(lines), WITHIN)
        failed = service.lines(ended["error_file_id"])
        good = service.lines(ended["output_file_id"])
        deaths = service.log.read_text().count('"event_name": "engine_down"')

    assert [line["custom_id"] for line in failed] == [f"r-{place}"], f"{deadly} at {place}: {failed} failed"
    assert failed[0]["error"]["code"] == "upstream_error", failed
    assert sorted(line["custom_id"] for line in good) == sorted(f"r-{i}" for i in range(REQUESTS) if i != place)
    assert deaths == DEADLY, f"the engine died {deaths} times of a request that may take {DEADLY} with it"

"""The pages of the documentation are true: what they show runs, and what they name is there."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from typer.main import get_command

import overnight
from overnight import server
from overnight.cli.app import app
from overnight.domain import events
from overnight.domain.limits import ALMOST_FULL
from tests import guides
from tests.acceptance import node_sdk
from tests.process import Served, chat
from tests.witness import Witness

WITHIN = 600.0
ALERTS = guides.ROOT / "docs" / "how-to" / "alerts.md"
RULES = guides.ROOT / "deploy" / "alerts.yml"
UNIT = guides.ROOT / "deploy" / "overnight.service"
CONTAINER = guides.ROOT / "deploy" / "Containerfile"
LAPTOP = guides.ROOT / "docs" / "how-to" / "run-a-batch-on-a-laptop.md"
ADDRESS = re.compile(r"http://(?:127\.0\.0\.1|localhost):10900")


@pytest.fixture(scope="module")
def upstream() -> Iterator[Witness]:
    with Witness(lists_models=False) as made:
        yield made


@pytest.fixture(scope="module")
def service(upstream: Witness, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for all pages, in front of a model server that takes any model's name."""
    with Served(tmp_path_factory.mktemp("guides"), "--upstream", upstream.url, "--upstream-slots", "32") as served:
        yield served


@pytest.fixture
def requests(tmp_path: Path) -> Path:
    """The input file that the pages speak of, as the first of them writes it."""
    written = re.search(r"<<'END'\n(.*?)^END$", guides.program(LAPTOP, "sh"), re.M | re.S)
    assert written is not None
    path = tmp_path / "requests.jsonl"
    path.write_text(written[1], "utf-8")
    return path


def run(service: Served, folder: Path, command: list[str]) -> None:
    """Run what a page shows, against the server of the tests."""
    tools = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = {**os.environ, "PATH": tools, "OVERNIGHT_SERVER": service.url, "OPENAI_LOG": ""}
    env["OVERNIGHT_DATA_DIR"] = str(folder / "data")
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=WITHIN)
    assert done.returncode == 0, f"{done.stdout[-2_000:]}\n{done.stderr[-3_000:]}"


@pytest.mark.parametrize("page", guides.GUIDES, ids=lambda page: page.stem)
def test_what_a_page_shows_runs(service: Served, requests: Path, page: Path) -> None:
    for language, program in (("sh", ["bash", "-euo", "pipefail"]), ("python", [sys.executable])):
        code = ADDRESS.sub(service.url, guides.program(page, language))
        file = requests.parent / f"page.{language}"
        file.write_text(code, "utf-8")
        if code:
            run(service, requests.parent, [*program, str(file)])


def test_what_a_page_shows_of_the_sdk_for_node_runs(service: Served, requests: Path) -> None:
    node_sdk.install()
    (requests.parent / "node_modules").symlink_to(node_sdk.FOLDER / "node_modules")
    file = requests.parent / "page.mjs"
    file.write_text(ADDRESS.sub(service.url, guides.program(guides.ROOT / "docs/how-to/use-the-openai-sdk.md", "js")))
    run(service, requests.parent, [node_sdk.node(), str(file)])


def test_there_are_pages_and_they_show_what_runs() -> None:
    assert len(guides.GUIDES) == 6
    assert sum(block.runs for page in guides.GUIDES for block in guides.blocks(page)) >= 20


@pytest.mark.parametrize("page", guides.PAGES, ids=lambda page: page.stem)
def test_every_link_leads_somewhere(page: Path) -> None:
    assert guides.broken_links(page) == []


def test_every_guide_is_linked_from_the_readme() -> None:
    readme = (guides.ROOT / "README.md").read_text("utf-8")
    assert [page.name for page in guides.GUIDES if f"docs/how-to/{page.name}" not in readme] == []


@pytest.mark.parametrize("page", [*guides.PAGES, UNIT], ids=lambda page: page.name)
def test_every_command_that_a_page_shows_is_one(page: Path) -> None:
    root = get_command(app)
    wrong = [(words, said) for words in guides.commands(page) if (said := guides.complaint(root, words))]
    assert wrong == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("overnight serve --modell a", "no option --modell"),
        ("overnight brew", "no command brew"),
        ("x=$(overnight list --limit 1) && overnight show a --nothing", "no option --nothing"),
        ("overnight files shred a", "no command shred"),
        ("overnight submit a.jsonl --param", "--param takes a value"),
    ],
)
def test_a_command_that_is_none_is_found_in_a_page(tmp_path: Path, line: str, said: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"```sh\n{line}\n```\n", "utf-8")
    assert said in str([guides.complaint(get_command(app), words) for words in guides.commands(page)])


def metrics(service: Served) -> set[str]:
    """The names of all series that a process shows, and those of their families."""
    text = httpx.get(f"{service.url}/metrics", trust_env=False).raise_for_status().text
    return set(re.findall(r"^(?:# TYPE )?(overnight_\w+)", text, re.M))


def rules() -> list[dict[str, Any]]:
    groups: list[dict[str, Any]] = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


@pytest.fixture
def waiting(service: Served, upstream: Witness) -> Iterator[None]:
    """A batch that has more requests than may run, and is paused: how long it has waited is shown."""
    upstream.seconds = 3.0
    batch = service.submit([chat(f"q-{n}", "wait") for n in range(300)])
    with overnight.Client(service.url) as client:
        client.pause_batch(batch)
        yield
        client.cancel_batch(batch)
    upstream.seconds = 0.0


@pytest.mark.usefixtures("waiting")
def test_every_metric_that_is_named_is_shown(service: Served) -> None:
    deadline = time.monotonic() + 180
    while "overnight_oldest_waiting_seconds" not in (shown := metrics(service)) and time.monotonic() < deadline:
        time.sleep(0.1)  # A worker that took the batch before it was paused hands it back.
    named = {name for rule in rules() for name in re.findall(r"overnight_\w+", rule["expr"])}
    assert len(named) >= 5
    assert named - shown == set()
    assert set(re.findall(r"`(overnight_\w+)`", ALERTS.read_text("utf-8"))) - shown == set()


def test_the_alert_for_a_filling_queue_comes_at_four_fifths_before_large_batches_are_refused() -> None:
    (rule,) = [rule for rule in rules() if rule["alert"] == "OvernightIntakeFilling"]
    size, capacity = "max(overnight_intake_pool_size)", "max(overnight_intake_pool_capacity)"
    ratio, _, threshold = rule["expr"].partition(" > ")
    assert ratio == f"{size} / {capacity}"
    assert float(threshold) == 0.8 < ALMOST_FULL
    assert f"over {float(threshold)} of capacity" in ALERTS.read_text("utf-8")
    assert f"Over {float(threshold):.0%}".replace("%", " %") in rule["annotations"]["summary"]


def test_the_alert_for_a_queue_that_nothing_runs_of_needs_both() -> None:
    (rule,) = [rule for rule in rules() if rule["alert"] == "OvernightWorkWaitsAndNothingRuns"]
    waits, runs = "max(overnight_intake_pool_size) > 0", "max(overnight_scheduling_pool_active) == 0"
    assert rule["expr"] == f"{waits} and {runs}"


def test_every_event_that_is_named_can_be_told() -> None:
    in_rules = {
        event
        for rule in rules()
        for match in re.findall(r'event=~?"([^"]+)"', rule["expr"])
        for event in match.split("|")
    }
    table = ALERTS.read_text("utf-8").partition("## Events")[2]
    in_page = {event for row in re.findall(r"^\| (`.*?) \|", table, re.M) for event in re.findall(r"`(\w+)`", row)}
    assert in_rules <= in_page
    assert in_page - set(events.FACTS) == set()


def test_every_reason_of_health_is_explained() -> None:
    code = inspect.getsource(server.Server.unhealthy).split('"""')[2]
    reasons = set(re.findall(r'f?"([\w ]+)[":]', code))
    told = ALERTS.read_text("utf-8").partition("## Health")[2].partition("## Metrics")[0]
    assert set(re.findall(r"^\| `([^`]+)` \|", told, re.M)) == reasons


def test_service_and_container_start_what_there_is() -> None:
    (served,) = guides.commands(UNIT)
    entry = re.search(r"^ENTRYPOINT (.*)$", CONTAINER.read_text("utf-8"), re.M)
    assert entry is not None
    program, *words = json.loads(entry[1])
    assert (program, words[0], served[0]) == ("overnight", "serve", "serve")
    assert guides.complaint(get_command(app), words) is None


def test_the_service_stops_later_than_running_requests_have_to_end() -> None:
    unit = UNIT.read_text("utf-8")
    grace, stop = re.search(r"--grace (\d+)", unit), re.search(r"^TimeoutStopSec=(\d+)$", unit, re.M)
    assert grace is not None
    assert stop is not None
    assert int(stop[1]) > int(grace[1])


def test_the_service_is_never_ended_for_what_its_model_takes_to_come() -> None:
    unit = UNIT.read_text("utf-8")
    assert "Type=exec" in unit
    assert [
        line for line in unit.splitlines() if line.startswith(("ExecStartPre", "ExecStartPost", "TimeoutStart"))
    ] == []

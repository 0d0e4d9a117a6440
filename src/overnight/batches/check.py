"""What can be said of a request only together with its batch: its endpoint and its model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from overnight.domain.bodies.carry import Lacks, first_lacking, tell_lacking
from overnight.domain.limits import MOST_PROBLEMS
from overnight.domain.lines import Problem, shown
from overnight.domain.prefix import Shape, read_shape

MOST_NAMES_KEPT = 10_000


@dataclass(slots=True)
class BatchCheck:
    """Checks the lines of a file against the batch that is made from it. The file's own check was made before."""

    endpoint: str
    resolve: Callable[[str], str | None]
    """The model that a name stands for; None where nothing serves it."""
    longest: int
    """Bytes of a line."""
    many_models: bool = False
    """Whether requests of the batch may name different models, as direct ones may."""
    lacks_of: Callable[[str], Lacks] = field(default=lambda model: frozenset(), kw_only=True)
    """What the routes to a model cannot carry."""
    is_known: Callable[[str], bool] = field(default=lambda name: False, kw_only=True)
    """Whether a name that stands for no model here stands for one of another endpoint."""
    lines: int = 0
    """Requests so far."""
    model: str | None = None
    """The one model of the batch, once a line has named one that is served; of many, that of the last such line."""
    problems: list[Problem] = field(default_factory=list)
    problem_count: int = 0
    _models: dict[str, str | None] = field(default_factory=dict)
    _lacks: dict[str, Lacks] = field(default_factory=dict)
    _first_name: str = ""

    def read(self, number: int, line: bytes | None) -> Shape | None:
        """Return the request of a line; None where it has a problem, which is noted."""
        self.lines += 1
        if line is None:
            self.note(Problem("line_too_long", number, f"The line is longer than {self.longest:,} bytes."))
            return None
        try:
            request = read_shape(line)
        except msgspec.MsgspecError as e:
            self.note(Problem("invalid_json_line", number, f"The line cannot be read: {e}."))
            return None
        if request.url != self.endpoint:
            self._note_endpoint(number, request)
            return None
        name = request.body.model
        model = self._models[name] if name in self._models else self._look_up(name)
        found = request if model == self.model and model is not None else self._other_model(number, request, model)
        if found is not None and model is not None and self._lacks[model]:
            return self._carried(number, line, found, model)
        return found

    def note(self, problem: Problem) -> None:
        """Keep a problem; past the most that are shown only their number is kept."""
        self.problem_count += 1
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(problem)

    def _look_up(self, name: str) -> str | None:
        if len(self._models) >= MOST_NAMES_KEPT:
            self._models.clear()
            self._lacks.clear()
        model = self._models[name] = self.resolve(name)
        if model is not None and model not in self._lacks:
            self._lacks[model] = self.lacks_of(model)
        return model

    def _carried(self, number: int, line: bytes, request: Shape, model: str) -> Shape | None:
        found = first_lacking(line, self._lacks[model])
        if found is None:
            return request
        where, name = found
        says = f"In the body of {shown(request.custom_id)} {tell_lacking(where, name, shown(model))}"
        self.note(Problem("invalid_parameter", number, says, f"body.{where}"))
        return None

    def _note_endpoint(self, number: int, request: Shape) -> None:
        says = (
            f"The url of {shown(request.custom_id)} is {request.url!r}; the endpoint of the batch is {self.endpoint!r}."
        )
        self.note(Problem("mismatched_endpoint", number, says, "url"))

    def _other_model(self, number: int, request: Shape, model: str | None) -> Shape | None:
        name = shown(request.body.model)
        if model is None:
            is_known = self.is_known(request.body.model)
            why = f"does not answer to {self.endpoint}" if is_known else "no connected server serves"
            says = f"{shown(request.custom_id)} names the model {name}, which {why}."
            self.note(Problem("model_not_found", number, says, "body.model"))
            return None
        if self.model is None or self.many_models:
            self.model, self._first_name = model, name
            return request
        says = (
            f"{shown(request.custom_id)} names the model {name}; lines before it name {self._first_name}. "
            "A batch from a file uses one model."
        )
        self.note(Problem("mismatched_model", number, says, "body.model"))
        return None


def with_total(problems: Sequence[Problem], count: int) -> list[Problem]:
    """The problems that are shown, the total in the message of the last one where there are more."""
    found = list(problems[:MOST_PROBLEMS])
    if count > len(found):
        last = found[-1]
        says = f"{last.message} This is the last of {len(found):,} problems shown; there are {count:,}."
        found[-1] = Problem(last.code, last.line, says, last.param)
    return found

"""Makes docs/reference/errors.md from the error tree: `python -m tools.errors_page` writes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from overnight.client import errors as client_errors
from overnight.domain import errors
from overnight.domain.codes import ANSWERS, PROBLEMS
from overnight.domain.errors import Refusal

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "errors.md"

HEAD = """\
# Errors

This page is made from the error tree (`src/overnight/domain/errors.py`, `codes.py`) by `python -m tools.errors_page`.

## Answers to API calls

Whatever went wrong, the answer is

```json
{"error": {"message": "…", "type": "…", "param": "…", "code": "…"}}
```

`message` is a sentence that says what to do, `code` is from the table, `param` names the field (or is null). Every
response carries `x-request-id`. A refusal that stays one carries `x-should-retry: false` where client libraries would
otherwise try again; one that may pass carries `Retry-After` in whole seconds from 1 to 60.

| code | status | type | may be tried again | what to do |
|---|---|---|---|---|
"""


def refusals(of: type[Refusal] = Refusal) -> Iterator[type[Refusal]]:
    """Every class of the tree that has an answer of its own."""
    for child in of.__subclasses__():
        yield child
        yield from refusals(child)


def page() -> str:
    """The whole page."""
    classes = sorted(set(refusals()), key=lambda c: (c.status, c.code, c.do))
    rows = [f"| `{c.code}` | {c.status} | {c.kind} | {'yes' if c.again else 'no'} | {c.do} |" for c in classes]
    parts = [HEAD + "\n".join(dict.fromkeys(rows))]
    parts.append(
        "## Problems of an input\n\nIn `errors.data` of a batch that was refused, and in `problems` of a file,"
        " each with its line (1-based) and, where it is about a field, `param`. A create call with `requests` is"
        " refused (400) with the code of its first problem, and `param` says which request it is about.\n"
    )
    parts.append(_table(PROBLEMS))
    parts.append(
        "## Errors of single requests\n\nIn `error.code` of a line of the error file; the others go on. Where no"
        " request of a batch got a response, the most frequent code is also in `error` of the batch.\n"
    )
    parts.append(_table(ANSWERS))
    parts.append("## Exceptions of the client\n\n`overnight.client.errors`:\n")
    parts.append(_exceptions())
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _table(codes: dict[str, str]) -> str:
    return "\n".join(["| code | meaning |", "|---|---|", *(f"| `{code}` | {says} |" for code, says in codes.items())])


def _exceptions() -> str:
    found = [
        value
        for value in vars(client_errors).values()
        if isinstance(value, type) and issubclass(value, Exception) and value.__module__ == client_errors.__name__
    ]
    rows = [f"| `{c.__name__}` | {(c.__doc__ or '').splitlines()[0]} |" for c in found]
    return "\n".join(["| exception | meaning |", "|---|---|", *rows])


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    print(f"{PAGE.name} written; {len(list(refusals(errors.Refusal)))} kinds of refusal")

"""Makes docs/reference/settings.md from the table of settings: `python -m tools.settings_page` writes it."""

from __future__ import annotations

from pathlib import Path

from overnight.domain.setting import Setting
from overnight.domain.settings_table import TABLE

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "settings.md"

HEAD = """\
# Settings

This page is made from the table of settings (`src/overnight/domain/settings_table.py`) by
`python -m tools.settings_page`.

These settings are kept in the database and hold for the whole deployment. A change needs no restart: every process has
taken it over within ten seconds.

```sh
overnight settings                                                 # what holds now; --json for programs
overnight settings set BATCH_MAX_REQUESTS 100000 BATCH_RETENTION_DAYS 30    # all of them, or none
overnight settings reset BATCH_RETENTION_DAYS                      # back to the default
```

The commands take `--data-dir` or `--database-url` as `overnight serve` does. An environment variable of a setting's
name gives its first value, when a process starts and nobody has set the setting yet; afterwards it is not looked at.

A batch keeps what it was created with: its window, its retention, how many requests it may hold, how long their lines
and how large all their responses together may be. What bounds one request, and how many run at once, holds for whatever
starts next.

The limits of an owner do not hold for the account `local`, to which everything belongs while there are no accounts. How
many requests may wait over all batches, and run in one process, is said when a process is started
(`--max-intake-capacity`, `--max-pool-size`).

| name | default | bounds | what it is for |
|---|---|---|---|
"""


def page() -> str:
    """The whole page."""
    return HEAD + "".join(_row(setting) for setting in TABLE)


def _row(s: Setting) -> str:
    bounds = f"{s.bounds} {s.unit}".rstrip()
    return f"| `{s.name}` | {s.shown(s.default)} | {bounds} | {s.says} |\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    print(f"{PAGE.name} written; {len(TABLE)} settings")

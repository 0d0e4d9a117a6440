"""Makes docs/reference/schemas from the tables of bodies: `python -m tools.schema_files` writes them."""

from __future__ import annotations

import json
from pathlib import Path

from overnight.domain.line_schemas import LINE_SCHEMAS

FOLDER = Path(__file__).parent.parent / "docs" / "reference" / "schemas"


def files() -> dict[str, str]:
    """The text of each file, by its name."""
    return {name: json.dumps(schema, indent=1, ensure_ascii=False) + "\n" for name, schema in LINE_SCHEMAS.items()}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in files().items():
        (FOLDER / name).write_text(text, "utf-8")
        print(f"{name} written")

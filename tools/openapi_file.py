"""Makes docs/reference/openapi.json from the routes of the app: `python -m tools.openapi_file` writes it."""

from __future__ import annotations

import json
import re
from pathlib import Path

from overnight.api.app import HANDLERS
from overnight.api.openapi.document import document

FILE = Path(__file__).parent.parent / "docs" / "reference" / "openapi.json"


def text() -> str:
    """The text of the file."""
    return json.dumps(document(HANDLERS), indent=1, ensure_ascii=False) + "\n"


def names_in(path: str) -> list[str]:
    """The parameters that a path of the document has."""
    return re.findall(r"\{([a-z_]+)\}", path)


if __name__ == "__main__":
    FILE.write_text(text(), "utf-8")
    print(f"{FILE.name} written")

"""Prints the files over 300 lines and the functions over 40; ends with 1 if there are any."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

LONGEST_FILE = 300
LONGEST_FUNCTION = 40


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its docstring."""
    total = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function) is not None:
        total -= (first.end_lineno or first.lineno) - first.lineno + 1
    return total


def main(folders: list[str]) -> int:
    """Look at every Python file below the folders; tests may be long, but not their functions."""
    found = []
    for path in sorted(p for folder in folders for p in Path(folder).rglob("*.py")):
        text = path.read_text("utf-8")
        lines = text.count("\n")
        if lines > LONGEST_FILE and path.parts[0] != "tests":
            found.append(f"{path}: {lines} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = lines_of(node)
                if length > LONGEST_FUNCTION:
                    found.append(f"{path}:{node.lineno} {node.name}: {length} lines")
    print("\n".join(found) if found else f"No file over {LONGEST_FILE}, no function over {LONGEST_FUNCTION} lines.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["src", "tests", "benchmarks", "tools"]))

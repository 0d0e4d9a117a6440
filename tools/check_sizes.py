"""Prints the files over 300 lines and the functions over 40; ends with 1 if there are any."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

LONGEST_FILE = 300
LONGEST_FUNCTION = 40


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function's body: without its signature, which for a command lists its options, and its docstring."""
    first = function.body[0]
    begins = first.lineno if ast.get_docstring(function) is None else (first.end_lineno or first.lineno) + 1
    return (function.end_lineno or function.lineno) - begins + 1


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
                length = body_lines(node)
                if length > LONGEST_FUNCTION:
                    found.append(f"{path}:{node.lineno} {node.name}: {length} lines")
    print("\n".join(found) if found else f"No file over {LONGEST_FILE}, no function over {LONGEST_FUNCTION} lines.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["src", "tests", "benchmarks", "tools"]))

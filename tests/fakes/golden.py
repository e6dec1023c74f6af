"""Outputs as they were agreed, to the letter. REPL_GOLDEN=write writes the files anew: look at the diff."""

import json
import os
from pathlib import Path
from typing import Any

WIDTH = 110


def agreed(file: Path, shown: str) -> None:
    if os.environ.get("REPL_GOLDEN") == "write":
        file.parent.mkdir(exist_ok=True)
        file.write_text(shown)
    assert shown == file.read_text()


def fitted(tree: Any, indent: str = "", before: str = "") -> str:
    """Returns JSON text as a formatter writes it: an object or a list is one line where it fits."""
    line = json.dumps(tree, ensure_ascii=False)
    if not isinstance(tree, dict | list | tuple) or len(indent) + len(before) + len(line) < WIDTH:
        return f"{indent}{before}{line}"
    if isinstance(tree, dict):
        parts = [fitted(value, indent + "  ", f"{json.dumps(str(name))}: ") for name, value in tree.items()]
    else:
        parts = [fitted(value, indent + "  ") for value in tree]
    opens, closes = "{}" if isinstance(tree, dict) else "[]"
    return f"{indent}{before}{opens}\n" + ",\n".join(parts) + f"\n{indent}{closes}"

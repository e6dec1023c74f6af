"""Outputs as they were agreed, to the letter. REPL_GOLDEN=write writes the files anew: look at the diff."""

import os
from pathlib import Path


def agreed(file: Path, shown: str) -> None:
    if os.environ.get("REPL_GOLDEN") == "write":
        file.parent.mkdir(exist_ok=True)
        file.write_text(shown)
    assert shown == file.read_text()

"""This module makes the zip for `--py-files`: `python -m runtime.driver.package FILE.zip`.

The zip holds `runtime` alone, without the planner.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

# Neither a job's driver, its slots nor the tasks of `repl verify` and `repl salvage --replay` import these.
LEFT_OUT = ("lab", "launch", "standby.py")


def package(file: Path) -> Path:
    """Writes the zip. The same sources give the same bytes."""
    root = Path(__file__).resolve().parent.parent
    left_out = [root / room for room in LEFT_OUT]
    modules = sorted(path for path in root.rglob("*.py") if not any(map(path.is_relative_to, left_out)))
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in modules:
            entry = zipfile.ZipInfo(str(path.relative_to(root.parent)))
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes())
    return file


if __name__ == "__main__":
    package(Path(sys.argv[1]))

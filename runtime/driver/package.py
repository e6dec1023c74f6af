"""This module makes the zip for `--py-files`: `python -m runtime.driver.package FILE.zip`.

The zip holds `runtime` alone, without the planner.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

# A job's driver, its slots and the tasks of `repl verify` import these; none imports a lab or a launcher.
ROOMS = (
    "audit",
    "batch",
    "contract",
    "driver",
    "files",
    "groups",
    "kafka",
    "ledger",
    "metrics",
    "replay",
    "slot",
)


def package(file: Path) -> Path:
    """Writes the zip. The same sources give the same bytes."""
    root = Path(__file__).resolve().parent.parent
    modules = [root / "__init__.py"]
    modules += sorted(path for room in ROOMS for path in (root / room).rglob("*.py"))
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in modules:
            entry = zipfile.ZipInfo(str(path.relative_to(root.parent)))
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes())
    return file


if __name__ == "__main__":
    package(Path(sys.argv[1]))

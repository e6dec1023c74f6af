"""What others can see of a job, by place: where a search for secrets looks."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from runtime.contract.spec import naming
from tests.records import read


def files_below(folder: Path) -> list[Path]:
    """Folders may go meanwhile."""
    return [Path(where) / name for where, _, names in os.walk(folder) for name in names]


def visible_texts(there: Mapping[str, Any], *folders: Path) -> dict[str, str]:
    """Command lines of all processes, the files of these folders, and the records of the job's topics."""
    files = [
        file for folder in folders for file in files_below(folder) if file.suffix not in (".jar", ".zip")
    ]
    shown: dict[str, str] = {}
    for file in [*Path("/proc").glob("[0-9]*/cmdline"), *files]:
        with suppress(OSError):  # gone meanwhile
            shown[str(file)] = file.read_bytes().decode(errors="replace")
    for topic in (naming.STATUS, naming.CONTROL):
        for record in read(there, topic):
            shown[f"{topic} {record.offset}"] = f"{record.key!r} {record.value!r}"
    return shown

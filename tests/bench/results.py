"""What a benchmark measured, kept for programs beside the table for people."""

import json
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

Load = tuple[float, float, float]


def keep(path: Path, rows: Sequence[Any], load: Load) -> None:
    """`rows` are dataclasses; `load` was the machine's before it began."""
    path.parent.mkdir(exist_ok=True)
    measured_on = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "load": load,
    }
    path.write_text(json.dumps({**measured_on, "rows": [asdict(row) for row in rows]}, indent=1) + "\n")

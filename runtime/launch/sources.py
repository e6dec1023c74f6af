"""This module makes the zip of sources that Spark ships to its workers, with the driver's own packager."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from runtime.launch.command import ROOT


def package(file: Path) -> None:
    """Writes the zip atomically."""
    new = file.with_name(f".{file.name}")
    command = [sys.executable, "-m", "runtime.driver.package", str(new)]
    subprocess.run(command, check=True, cwd=ROOT, timeout=60)
    new.replace(file)

"""How the driver's process ends, as far as no Spark is needed for it."""

import subprocess
import sys
from pathlib import Path

from runtime.contract.exits import JobExit
from runtime.launch.command import MAIN


def test_a_final_end_can_count_as_a_success(tmp_path: Path):
    """For who knows success and failure only, and starts anew after every failure."""
    file = tmp_path / "spec.json"
    file.write_text("{}")
    command = [sys.executable, str(MAIN), "--spec", str(file)]
    first = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert first.returncode == JobExit.BAD_SPEC
    assert "not a job spec" in first.stderr
    second = subprocess.run([*command, "--final-is-success"], capture_output=True, check=False, timeout=60)
    assert second.returncode == JobExit.STOPPED

"""A slot in a process of its own, so that it can be killed: python -m tests.runtime.slot.slot_process
FILE.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import uvloop

from runtime.contract.records.control import Assignment, SlotSpec
from runtime.slot.failpoints import VARIABLE
from runtime.slot.slot import Slot


def main(path: str) -> int:
    spec, assignment = json.loads(Path(path).read_bytes())
    slot = Slot(msgspec.convert(spec, SlotSpec), msgspec.convert(assignment, Assignment))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(runner.run(slot.run()), flush=True)
    return 0


@contextmanager
def slot_process(
    folder: Path, spec: SlotSpec, assignment: Assignment, failpoint: str = ""
) -> Iterator[subprocess.Popen[str]]:
    """Killed at the end, however it ends."""
    path = folder / f"slot-{len(list(folder.iterdir()))}.json"
    path.write_bytes(msgspec.json.encode([spec, assignment]))
    command = [sys.executable, "-m", "tests.runtime.slot.slot_process", str(path)]
    environ = {**os.environ, VARIABLE: failpoint}
    with subprocess.Popen(command, env=environ, text=True, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGCONT)
            process.kill()


def ended(process: subprocess.Popen[str], status: int = 0) -> str:
    """Waits until the process ends with this status, and returns what it printed."""
    said, _ = process.communicate(timeout=120)  # it begins with the whole of Python and its clients
    assert process.returncode == status
    return said


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

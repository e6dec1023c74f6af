"""The daemon that Spark's workers of one machine are forked from."""

import subprocess
import sys

from tests.commands import environment

LOADED = """
import os, sys
import runtime.driver.workers
print(len(os.listdir("/proc/self/task")), *sorted({"pandas", "pyarrow"} & sys.modules.keys()))
"""


def test_it_may_fork_after_its_imports() -> None:
    """A lock that a thread held at a fork would stay locked in the worker."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED],
        capture_output=True,
        text=True,
        check=True,
        env=environment({"OPENBLAS_NUM_THREADS": None}),
    )
    assert done.stdout.split() == ["1"]

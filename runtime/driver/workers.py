"""Spark's daemon of Python workers on one machine: slots start with their modules loaded, and share them.

Spark runs it instead of `pyspark.daemon` (spark.python.daemon.module), and forks a worker for each task. On a
cluster an executor runs one slot, and the sources arrive after its daemon has started: Spark's own is used.
"""

from __future__ import annotations

import gc
import os

from runtime.driver.python_path import use_installed_spark

# A library that starts threads must not be loaded before a fork. NumPy starts none with this.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
use_installed_spark()

import pyspark.worker  # noqa: F401,E402
from pyspark.daemon import manager  # noqa: E402

import runtime.driver.slots.worker  # noqa: F401,E402

if __name__ == "__main__":
    gc.freeze()  # a collection in a worker would copy the pages of all objects that it visits
    manager()

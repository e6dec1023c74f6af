"""A driver counts what Spark has copied for it, by the folder that Spark copies to."""

import asyncio
import getpass
from pathlib import Path

import pytest

from runtime.launch.command import run_once

pytestmark = pytest.mark.spark

_MAIN = """
import sys
from pathlib import Path
from pyspark import SparkConf, SparkContext
from runtime.driver.yarn import YarnApplications
SparkContext._ensure_initialized()
conf, yarn = SparkConf().set("spark.yarn.stagingDir", f"file:{sys.argv[1]}"), YarnApplications("driver", 1)
yarn.prepare(conf)
print("tags:", conf.get("spark.yarn.tags"), flush=True)
archive = Path(sys.argv[2])
for size in (0, 1000, 5000):
    archive.write_bytes(bytes(size))
    yarn._measure_staging()
    print("shipped:", yarn.shipped, flush=True)
archive.unlink()
yarn._measure_staging()
print("shipped:", yarn.shipped, flush=True)
"""


def test_what_is_shipped_grows_with_the_files_in_the_staging_folder(tmp_path: Path) -> None:
    """And does not shrink where YARN removes those of another application that has ended."""
    main, lines = tmp_path / "main.py", list[str]()
    main.write_text(_MAIN)
    folder = tmp_path / getpass.getuser() / ".sparkStaging" / "application_1_1"
    folder.mkdir(parents=True)
    arguments = [str(tmp_path), str(folder / "env.tar.gz")]

    asyncio.run(run_once(main, arguments, said=lines.append, prefix=""))

    assert [line for line in lines if line.startswith(("tags", "shipped"))] == [
        "tags: repl-driver",
        *(f"shipped: {size}" for size in (0, 1000, 5000, 5000)),
    ]

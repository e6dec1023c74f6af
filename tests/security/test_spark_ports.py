"""A local job's Spark is reached from this machine alone, and has its authentication on there."""

import asyncio
from pathlib import Path

import psutil
import pytest
from msgspec.structs import replace

from runtime.launch.command import HERE, run_once

pytestmark = pytest.mark.spark

_MAIN = """
import os, sys, time
from pyspark import SparkConf, SparkContext
SparkContext._ensure_initialized()
context = SparkContext.getOrCreate(SparkConf().setAppName("ports"))
def work(_):
    yield 1
assert context.parallelize([0], 1).mapPartitions(work).collect() == [1]
settings = context.getConf()
told = [settings.get("spark.authenticate"), settings.get("spark.network.crypto.enabled"),
        str(os.getppid()), str(os.getpid())]
print("ports:" + " ".join(told), flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
"""


def test_a_local_job_listens_on_the_loopback_alone(tmp_path: Path) -> None:
    """With the UI on: driver, block manager, UI, Python's gateway and daemon."""
    main, done = tmp_path / "main.py", tmp_path / "done"
    main.write_text(_MAIN)
    addresses: set[str] = set()

    def said(line: str) -> None:
        authenticate, crypto, jvm, driver = line.split()
        assert (authenticate, crypto) == ("true", "true")
        for process in (psutil.Process(int(jvm)), *psutil.Process(int(jvm)).children(recursive=True)):
            addresses.update(
                one.laddr.ip for one in process.net_connections("tcp") if one.status == psutil.CONN_LISTEN
            )
        assert int(driver) in {one.pid for one in psutil.Process(int(jvm)).children(recursive=True)}
        done.touch()

    where = replace(
        HERE, launch=replace(HERE.launch, conf={"spark.ui.enabled": "true", "spark.ui.port": "0"})
    )
    asyncio.run(run_once(main, [str(done)], said=said, prefix="ports:", where=where))

    assert addresses
    assert {one.removeprefix("::ffff:") for one in addresses} == {"127.0.0.1"}

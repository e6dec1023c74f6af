"""Clusters for tests, on the lab that users have: their specs, Kafka's tools, and MirrorMaker 2."""

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from runtime.lab.cluster import KAFKA_VERSION, SCRAM, LabClusterSpec, Security
from runtime.lab.files import LabError
from runtime.lab.lab import Lab
from tests.records import coordinators_ready

# Fast to start rather than fast for hours: the quick compiler compiles early, so a short test's broker takes
# 10 to 15 % less CPU. Where setpriv is there, a killed session takes its brokers along.
JVM = ("-XX:TieredStopAtLevel=1", "-XX:CompileThresholdScaling=0.3")
WITH_PARENT = ("setpriv", "--pdeathsig", "KILL") if shutil.which("setpriv") else ()


def spec(
    name: str,
    *,
    brokers: int = 1,
    security: Security = Security.PLAIN,
    properties: Mapping[str, str] | None = None,
    version: str = KAFKA_VERSION,
    mechanism: str = SCRAM,
) -> LabClusterSpec:
    """A cluster as tests want it, on free ports."""
    return LabClusterSpec(
        name,
        brokers=brokers,
        security=security,
        properties=properties or {},
        version=version,
        mechanism=mechanism,
        prefix=WITH_PARENT,
        users=("repl", "app", "stranger"),  # nobody ever gives the last one a right
    )


@contextmanager
def running_lab(folder: Path, *clusters: LabClusterSpec, purge: bool = True) -> Iterator[Lab]:
    """Yields a lab in `folder` whose clusters answer. At its end the lab stops, and its files are removed."""
    lab = Lab(folder)
    try:
        lab.up(clusters)
        for cluster in lab.clusters.values():
            coordinators_ready(cluster.client)
        yield lab
    finally:
        lab.down(purge=purge)


def run_tool(
    lab: Lab, cluster: str, tool: str, *arguments: str, stdin: str = "", timeout: float = 60.0
) -> str:
    """Runs one of Kafka's own tools to its end and returns its output. Raises LabError."""
    done = subprocess.run(
        lab.tool_command(cluster, tool, *arguments),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    if done.returncode:
        raise LabError(f"{tool} failed: {(done.stdout + done.stderr).strip()[-1000:]}", where=cluster)
    return done.stdout

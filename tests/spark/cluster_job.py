"""A job on a standalone cluster of Spark, as an operator has it: applied and destroyed by `repl`."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

from planner.workflows.topology import kill_all_below
from runtime.contract.records.job_status import SlotReport
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.spec import jobspec
from runtime.contract.spec.jobspec import JobSpec
from runtime.lab.cluster import LabClusterSpec
from runtime.lab.lab import Lab
from tests.commands import repl
from tests.labs import running_lab
from tests.network import network
from tests.records import wait_for
from tests.spark.job import current_reports, statuses
from tests.spark.standalone import Standalone, Worker, standalone
from tests.topologies import at

WITHIN_S = 420.0  # many times what anything takes on a quiet machine


@dataclass(frozen=True)
class Site:
    """Two clusters of brokers, and a Master with Workers that reach them. `address` is this machine's."""

    lab: Lab
    spark: Standalone
    address: str
    folder: Path

    @property
    def environ(self) -> dict[str, str]:
        """What a command gets that submits to the cluster."""
        return {
            "SPARK_CONF_DIR": str(self.spark.conf),
            "SPARK_LOCAL_IP": self.address,
            "SPARK_LOCAL_HOSTNAME": self.address,
        }

    def client(self, cluster: str) -> dict[str, Any]:
        return dict(self.lab.clusters[cluster].client)


@contextmanager
def site(
    folder: Path, specs: Sequence[LabClusterSpec], workers: int, settings: Mapping[str, str] | None = None
) -> Iterator[Site]:
    """`settings` are Spark's, for the Master and its Workers."""
    below = folder / "spark"
    below.mkdir()
    with network(workers + 1) as made:
        clusters = [changed(cluster, host=made.address) for cluster in specs]
        with (
            running_lab(folder / "lab", *clusters) as lab,
            standalone(below, {}, workers, made.hosts, settings) as spark,
        ):
            yield Site(lab, spark, made.address, folder)


class ClusterJob:
    """A job of one flow from dc1 to dc2, with a slot on each of the Workers as Spark places them."""

    def __init__(self, place: Site, topics: Sequence[str], slots: int, conf: Mapping[str, str]) -> None:
        self.slots = slots
        self._place = place
        self._home = place.folder / "home"
        topology = at(place.lab, "workers", place.folder, ("dc1", "dc2"))
        selected = {"include": [re.escape(one) for one in topics]}
        flow = {"name": "dc1-to-dc2", "from": "dc1", "to": "dc2", "topics": selected}
        launch = {"launcher": "standalone", "master": place.spark.master.url, "slots": slots}
        secured = {"spark.authenticate": "true", "spark.driver.host": place.address}
        topology.more["flows"] = [flow | {"groups": {"sync": False}, "heartbeats": False}]
        topology.more["jobs"] = {"dc2": {**launch, "metrics": False, "conf": {**secured, **conf}}}
        self._file = topology.write()

    def start(self) -> None:
        """Returns when every slot runs. It waits itself: a busy machine starts executors slowly."""
        self._repl("apply", "--auto-approve", "--no-wait")
        self.wait_for_slots()

    def stop(self) -> None:
        self._repl("destroy", "--auto-approve")

    def kill(self) -> None:
        """Kills what is left of the driver's side, as where a run was interrupted."""
        kill_all_below(self._home)

    def reports(self) -> dict[int, SlotReport]:
        """The newest report of each slot to the driver that runs."""
        return current_reports(self._spec())

    def placement(self, without: Collection[int] = ()) -> dict[PartitionKey, int]:
        """The slot of each partition by these reports; `without` those of some processes."""
        return {
            one.key: slot
            for slot, report in self.reports().items()
            if report.process not in without
            for one in report.partitions
        }

    def processes(self) -> set[int]:
        """The processes of the slots by their newest reports."""
        return {one.process for one in self.reports().values()}

    def processes_on(self, worker: Worker) -> dict[int, int]:
        """The process of each slot that runs on this Worker."""
        here = {one.pid for one in worker.executors()}
        found = {slot: report.process for slot, report in self.reports().items()}
        return {slot: pid for slot, pid in found.items() if pid in here}

    def wait_for_slots(self, ended: Collection[int] = ()) -> None:
        """Returns when every slot runs, and none of them in one of the processes that have ended."""

        def run() -> bool:
            status, _ = statuses(self._spec())
            states = [one.state for one in status.slots] if status is not None else []
            return states == ["running"] * self.slots and self.processes().isdisjoint(ended)

        wait_for(run, WITHIN_S, 0.2, about=lambda: f"{statuses(self._spec())}\n{self.log()[-6000:]}")

    def log(self) -> str:
        return (self._home / "jobs" / "dc2" / "job.log").read_text(errors="replace")

    def _spec(self) -> JobSpec:
        return jobspec.decode((self._home / "jobs" / "dc2" / "spec.json").read_bytes())

    def _repl(self, *words: str) -> None:
        environ = {"REPL_HOME": str(self._home), **self._place.environ}
        done = repl(*words, "--path", str(self._file), env={**os.environ, **environ}, timeout=2 * WITHIN_S)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"

"""A job on a real YARN: a ResourceManager and two NodeManagers of the lab, which all stories here share.

Each loss is followed by what the job reports, and in the end every record is compared. The clusters want
SASL, with passwords in files that the topology names. Slots run in a Python environment that the job ships as
an archive.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tarfile
import time
import urllib.request
import venv
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import psutil
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from runtime.contract.extras import spark_package
from runtime.contract.spec import jobspec
from runtime.lab.lab import Lab
from runtime.lab.spark import LabSpark, SparkCluster
from tests import checker
from tests.commands import repl
from tests.processes import words_of
from tests.records import create_topic, wait_for
from tests.spark.job import current_reports, statuses
from tests.spark.visible import visible_texts
from tests.topologies import Topology

_WITHIN_S = 420.0  # many times what anything takes on a quiet machine
_MASTER_MB = 800  # less than any application master takes
_EXECUTOR, _MASTER = "YarnCoarseGrainedExecutorBackend", "org.apache.spark.deploy.yarn.ExecutorLauncher"
pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(2700)]


@pytest.fixture(scope="module")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabSpark]:
    cluster = LabSpark(tmp_path_factory.mktemp("yarn"), SparkCluster.YARN)
    cluster.up(workers=2, memory_mb=3072)
    yield cluster
    cluster.down()


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of a virtual environment that lacks the product and Spark: a job ships these itself."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder / "environment", symlinks=True)
    archive = folder / "environment.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as packed:
        packed.add(folder / "environment", ".")
        for name in required("kafka-repl", "spark") - {"kafka-repl", "pyspark", "py4j"}:
            for file in distribution(name).files or ():
                located = Path(os.path.normpath(file.locate()))
                packed.add(located, located.relative_to(sys.prefix))
    return archive


def required(name: str, extra: str = "") -> set[str]:
    """A distribution with all that it requires for an extra."""
    names = {name}
    for text in distribution(name).requires or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            names |= required(canonicalize_name(requirement.name))
    return names


class YarnJob:
    """A job on YARN as an operator has it, with one flow and two slots."""

    def __init__(
        self, lab: Lab, yarn: LabSpark, folder: Path, names: Callable[[str], str], slots: int = 2
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.yarn = yarn
        self.folder = folder
        self.name, self.topic = names("job"), names("orders")
        self.home = folder / "home"
        self.passwords: list[str] = []
        clusters: dict[str, dict[str, object]] = {}
        for name, cluster in lab.clusters.items():
            password = folder / f"{name}.password"
            password.write_text(str(cluster.client["sasl.password"]))
            password.chmod(0o600)
            self.passwords.append(password.read_text())
            client = {**cluster.settings(), "sasl.password": {"file": str(password)}}
            clusters[name] = {"bootstrap": cluster.bootstrap, "client": client}
        flow = {"name": names("flow"), "from": "dc1", "to": "dc2", "topics": {"include": [self.topic]}}
        # Spark's jars are on each node: no start copies them to the cluster.
        conf = {"spark.driver.host": "127.0.0.1", "spark.yarn.jars": f"local:{spark_package()}/jars/*"}
        self.launch: dict[str, Any] = {
            "launcher": "yarn",
            "slots": slots,
            "memory": "400m",
            "metrics": False,
            "conf": conf,
        }
        self.topology = Topology(names("far"), folder / "far.yaml", clusters)
        self.topology.more = {"flows": [flow | {"job": self.name}], "jobs": {self.name: self.launch}}

    def repl(self, *words: str, home: Path | None = None, code: int = 0) -> str:
        """Runs a command over the topology; `home` is that of another checkout."""
        environ = {**os.environ, **self.yarn.environment, "REPL_HOME": str(home or self.home)}
        done = repl(*words, "--path", str(self.topology.write()), env=environ, timeout=2 * _WITHIN_S)
        assert done.returncode == code, f"{done.stdout}\n{done.stderr}\n{self.log()}"
        return done.stdout + done.stderr

    def log(self) -> str:
        file = self.home / "jobs" / self.name / "job.log"
        return file.read_text(errors="replace")[-8000:] if file.exists() else ""

    def slots(self) -> dict[int, int]:
        """The process of each slot that runs, by its newest report to the driver that runs."""
        spec = jobspec.decode((self.home / "jobs" / self.name / "spec.json").read_bytes())
        status, _ = statuses(spec)
        if status is None:
            return {}
        running = {slot for slot, view in enumerate(status.slots) if view.state == "running"}
        return {
            slot: report.process
            for slot, report in current_reports(spec).items()
            if slot in running and psutil.pid_exists(report.process)
        }

    def wait_for_slots(self, *ended: int) -> None:
        """Returns when two slots run, none of them in a process that has ended."""
        wait_for(
            lambda: len(slots := set(self.slots().values())) == 2 and slots.isdisjoint(ended),
            _WITHIN_S,
            0.3,
            about=self.log,
        )


def asked(yarn: LabSpark, path: str) -> str:
    with urllib.request.urlopen(f"{yarn.page}/{path}", timeout=60) as answer:
        text: str = answer.read().decode(errors="replace")
        return text


def applications(yarn: LabSpark, job: str) -> list[dict[str, object]]:
    """The applications of a job, as the ResourceManager knows them."""
    known = json.loads(asked(yarn, "ws/v1/cluster/apps"))["apps"] or {}
    return [one for one in known.get("app", ()) if one["name"] == f"repl {job}"]


def states(yarn: LabSpark, job: str) -> list[object]:
    """The states of a job's applications; none while the ResourceManager does not answer."""
    with suppress(OSError):
        return [one["state"] for one in applications(yarn, job)]
    return []


def processes_of(main: str) -> list[psutil.Process]:
    """Java's processes that run this class."""
    found = []
    for process in psutil.process_iter():
        words = words_of(process)
        if any(word.endswith(main) for word in words) and words[0].endswith("java"):
            found.append(process)
    return found


def executor_of(process: int) -> psutil.Process:
    """The executor of a slot: the JVM above its Python process."""
    return next(one for one in psutil.Process(process).parents() if one.name() == "java")


def test_a_job_survives_each_loss_and_is_stopped_from_another_checkout(
    lab_sasl: Lab, yarn: LabSpark, environment: Path, fresh: Callable[[str], str], tmp_path: Path
):
    job = YarnJob(lab_sasl, yarn, tmp_path, fresh)
    job.launch["options"] = {"archives": f"{environment}#env", "python": "./env/bin/python"}
    source, there = (dict(lab_sasl.clusters[name].client) for name in ("dc1", "dc2"))
    create_topic(source, job.topic, 4, config=checker.TOPIC_CONFIG)
    with checker.writing(source, job.topic, checker.Spec(records=10**9, rate=100, large_every=0)) as writer:
        try:
            job.repl("apply", "--auto-approve")
            job.wait_for_slots()
            assert_no_secret_is_seen(job, there)
            for pid in job.slots().values():
                libraries = libraries_of(pid)
                assert any("/numpy/" in library for library in libraries)
                assert [library for library in libraries if not library.startswith(str(yarn.folder))] == []

            hit = min(job.slots().values())
            lost(job, "an executor's container", executor_of(hit).kill, hit)

            for attempt in (1, 2):  # YARN makes no third one: the driver ends, and submits a new application
                (master,) = processes_of(_MASTER)
                ended = job.slots().values()  # its containers end with it
                lost(job, f"the ApplicationMaster of attempt {attempt}", master.kill, *ended)
            assert sorted(map(str, states(yarn, job.name))) == ["FAILED", "RUNNING"]

            before = set(job.slots().values())
            yarn.kill("resourcemanager")
            yarn.up()
            wait_for(lambda: "RUNNING" in states(yarn, job.name), _WITHIN_S, about=job.log)
            job.wait_for_slots()
            assert set(job.slots().values()) == before  # executors do not notice
            print("the ResourceManager started again: the slots run on")

            hurt = [pid for pid in before if "nodemanager1" in working_folder(pid)]
            lost(job, f"a NodeManager with {len(hurt)} slots", lambda: yarn.kill("nodemanager1"), *hurt)
            assert all("nodemanager2" in working_folder(pid) for pid in job.slots().values())
            yarn.up()

            report = checker.compare(source, there, job.topic, written=writer.written, patience=120)
            assert report.clean, report
            job.topology.more = {}
            job.topology.topic(fresh("unrelated"))  # a topology that declares nothing is an error
            plan = job.repl("apply", "--auto-approve", home=tmp_path / "another-checkout")
            assert f"job.{job.name}" in plan
            wait_for(lambda: "FINISHED" in states(yarn, job.name), _WITHIN_S, about=job.log)
            wait_for(lambda: not processes_of(_EXECUTOR), _WITHIN_S, about=job.log)  # they end after it
        finally:
            job.repl("destroy", "--auto-approve")


def test_an_apply_names_the_full_queue_and_its_job_starts_once_there_is_room(
    lab_sasl: Lab, yarn: LabSpark, fresh: Callable[[str], str], tmp_path: Path
):
    # More slots than the queue has memory for: nothing is left for the application master of another job.
    large = YarnJob(lab_sasl, yarn, tmp_path / "large", fresh, slots=20)
    small = YarnJob(lab_sasl, yarn, tmp_path / "small", fresh, slots=1)
    source, there = (dict(lab_sasl.clusters[name].client) for name in ("dc1", "dc2"))
    for job in (large, small):
        create_topic(source, job.topic, 1, config=checker.TOPIC_CONFIG)
    try:
        large.repl("apply", "--auto-approve")
        wait_for(lambda: free_mb(yarn) < _MASTER_MB, _WITHIN_S, about=large.log)
        began = time.monotonic()
        output = small.repl("apply", "--auto-approve", code=1)
        print(f"the full queue ended the apply after {time.monotonic() - began:.1f} s:\n{output}")
        assert "YARN has no container for application_" in (said := " ".join(output.split()))
        assert re.search(r"the queue root\.default of YARN is (full|9\d% full)", said), said
        assert states(yarn, small.name) == ["ACCEPTED"]

        large.topology.more = {}
        large.topology.topic(fresh("unrelated"))
        large.repl("apply", "--auto-approve")  # stops the large job
        small.repl("apply", "--auto-approve")  # records the small one, which starts meanwhile
        with checker.writing(source, small.topic, checker.Spec(records=1_000)) as writer:
            writer.wait_for(500)
        report = checker.compare(source, there, small.topic, written=writer.written, patience=120)
        assert report.clean, report
    finally:
        for job in (small, large):
            job.repl("destroy", "--auto-approve")


def free_mb(yarn: LabSpark) -> int:
    """The memory that no container has."""
    return int(json.loads(asked(yarn, "ws/v1/cluster/metrics"))["clusterMetrics"]["availableMB"])


def lost(job: YarnJob, what: str, kill: Callable[[], None], *hit: int) -> None:
    began = time.monotonic()
    kill()
    job.wait_for_slots(*hit)
    print(f"{what} lost: two slots run again after {time.monotonic() - began:.1f} s")


def working_folder(pid: int) -> str:
    """Where a slot runs: below the folder of its NodeManager."""
    return str(psutil.Process(pid).cwd())


def libraries_of(pid: int) -> list[str]:
    """The compiled modules of installed packages that a process has loaded."""
    return [part.path for part in psutil.Process(pid).memory_maps() if "/site-packages/" in part.path]


def assert_no_secret_is_seen(job: YarnJob, there: dict[str, object]) -> None:
    """Neither on a command line, nor in YARN's pages and folders, nor in the job's files and topics."""
    shown = visible_texts(there, job.home, job.yarn.folder)
    (application,) = applications(job.yarn, job.name)
    for page in ("ws/v1/cluster/apps", f"cluster/app/{application['id']}", "conf", "cluster/apps"):
        shown[page] = asked(job.yarn, page)
    assert any(job.name in text for place, text in shown.items() if place.startswith("ws/"))
    for password in job.passwords:
        assert [place for place, text in shown.items() if password in text] == []

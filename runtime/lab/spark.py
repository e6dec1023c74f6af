"""This module runs a real cluster for Spark jobs on this machine: YARN, or Spark's own Master and Workers.

Each daemon is a process of its own on the loopback, with the classes that pyspark brings. YARN's daemons come
from the jars of Hadoop's mini cluster, which are fetched and pinned as Kafka's are. Ports are free ones, and
chosen once: a daemon that starts again has those that clients and other daemons know.

    LabSpark(Path(".lab"), SparkCluster.YARN).up()
"""

import hashlib
import json
import os
import re
import secrets
import shlex
import shutil
import sys
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from http.client import HTTPException
from pathlib import Path
from typing import Annotated
from xml.sax.saxutils import escape

import msgspec

from runtime.contract.extras import Extra, missing_extra, spark_package
from runtime.java import find_java
from runtime.lab import processes
from runtime.lab.files import (
    LabError,
    changing,
    claim,
    last_lines,
    log4j2,
    ours,
    size_of,
    write,
)
from runtime.lab.kit import IvyDependency, IvyRequest, Report, classpath, silent
from runtime.lab.ports import free_ports, require_free_port

HADOOP_VERSION = "3.5.0"  # that of pyspark's own jars
_BOUNCY_CASTLE = "1.84"
YARN_JARS = IvyRequest(
    f"yarn-{HADOOP_VERSION}",
    (
        IvyDependency("org.apache.hadoop", "hadoop-client-minicluster", HADOOP_VERSION),
        *(
            IvyDependency("org.bouncycastle", f"{name}-jdk18on", _BOUNCY_CASTLE)
            for name in ("bcprov", "bcpkix", "bcutil")
        ),
    ),
    count=4,
)
MARK = "REPL_LAB_SPARK"  # in the environment of each daemon and of all that it starts
WORKERS, MEMORY_MB, CORES = 2, 4096, 8  # of a new cluster; memory and cores of each worker
TIMEOUT = 180.0
_STOP_GRACE_S = 10.0
_WAIT_S = 60.0
_DAEMON_MB = 250  # of a daemon, as measured
_SPARK_YARN = "org.apache.hadoop.yarn.server"
_RECORD = "spark.json"
# The daemons are on the loopback, to which no proxy of the environment leads.
_LOOPBACK = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Djava.awt.headless=true")


class SparkCluster(StrEnum):
    """These are the kinds of clusters that run Spark's applications."""

    YARN = "yarn"
    STANDALONE = "standalone"

    @property
    def manager(self) -> str:
        """The daemon that applications ask for resources."""
        return "resourcemanager" if self is SparkCluster.YARN else "master"

    @property
    def worker(self) -> str:
        """The daemon that runs executors; its number follows."""
        return "nodemanager" if self is SparkCluster.YARN else "worker"


@dataclass(frozen=True, slots=True)
class SparkDaemon:
    """A SparkDaemon is one daemon. The first port is of its page, the second its own address."""

    name: str
    ports: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StoredSpark:
    """A StoredSpark is the file that is kept of a cluster."""

    id: str
    daemons: Annotated[tuple[SparkDaemon, ...], msgspec.Meta(min_length=1)]  # the manager first
    memory_mb: int  # of the executors of a worker
    cores: int


@dataclass(frozen=True, slots=True)
class SparkDaemonStatus:
    """A SparkDaemonStatus is the state of one daemon."""

    name: str
    pid: int | None
    memory_bytes: int
    log: str
    serves: bool  # it answers; of a worker: the manager counts on it


@dataclass(frozen=True, slots=True)
class SparkStatus:
    """A SparkStatus is the state of a cluster, and what a job needs to run on it."""

    kind: SparkCluster
    home: str
    page: str
    master: str
    environment: Mapping[str, str]  # to be set where `repl apply` is called
    daemons: tuple[SparkDaemonStatus, ...]
    format_version: int = 1


class LabSpark:
    """A LabSpark is the cluster of one kind in a lab's folder. Its methods raise LabError."""

    def __init__(self, home: Path, kind: SparkCluster, *, report: Report = silent) -> None:
        self.home = home.absolute()
        self.kind = kind
        self.folder = self.home / f"spark-{kind}"
        self.conf = self.folder / "conf"
        self.report = report
        self.stored: StoredSpark | None = None  # read at the first use: `down` removes one that is unreadable

    @property
    def master(self) -> str:
        """What stands below `master` of a job."""
        if self.kind is SparkCluster.YARN:
            return "yarn"
        return f"spark://127.0.0.1:{self._existing().daemons[0].ports[1]}"

    @property
    def environment(self) -> dict[str, str]:
        """The variables that are set where `repl apply` is called."""
        name = "HADOOP_CONF_DIR" if self.kind is SparkCluster.YARN else "SPARK_CONF_DIR"
        return {name: str(self.conf), "SPARK_LOCAL_IP": "127.0.0.1"}

    @property
    def page(self) -> str:
        """The address of the manager's page."""
        return f"http://127.0.0.1:{self._existing().daemons[0].ports[0]}"

    def up(
        self,
        workers: int | None = None,
        memory_mb: int | None = None,
        cores: int | None = None,
        *,
        timeout: float = TIMEOUT,
    ) -> None:
        """Creates the cluster where there is none, and starts each daemon that does not run.

        Once it returns, the manager counts on every worker. If it fails, no daemon that it started is left,
        and no cluster that it created.
        """
        with changing(self.home, f"repl lab spark {self.kind} up"):
            java = str(find_java(os.environ, LabError))
            self.stored = self._load()
            new = self.stored is None
            if self.stored is None:
                self._require_place()
                self._require_memory(workers or WORKERS)
            else:
                self._require_same(self.stored, workers, memory_mb, cores)
            spark = spark_package()
            if spark is None:
                raise LabError(*missing_extra(Extra.SPARK, "a cluster for Spark"))
            jars = classpath(java, YARN_JARS, self.report) if self.kind is SparkCluster.YARN else ""
            if self.stored is None:
                self.stored = self._create(workers or WORKERS, memory_mb or MEMORY_MB, cores or CORES)
            try:
                self._start(java, spark, jars, self.stored.daemons, timeout)
            except BaseException:
                if new:  # the logs stay until the next creation
                    (self.folder / _RECORD).unlink(missing_ok=True)
                    self.stored = None
                raise

    def kill(self, name: str) -> None:
        """Kills a daemon with SIGKILL, and all that it started: its machine has lost its power."""
        daemon = self._daemon(name)
        processes.kill([self._mark(daemon)])
        processes.kill_with_variable(f"{MARK}={self._mark(daemon)}")

    def status(self) -> SparkStatus:
        """Returns the state of each daemon, and how a job uses the cluster."""
        stored = self._existing()
        running = processes.find([self._mark(daemon) for daemon in stored.daemons])
        serving = self._serving()

        def state(daemon: SparkDaemon) -> SparkDaemonStatus:
            process = running.get(self._mark(daemon))
            log = str(self._log(daemon))
            if process is None:
                return SparkDaemonStatus(daemon.name, None, 0, log, serves=False)
            return SparkDaemonStatus(daemon.name, process.pid, process.memory, log, daemon.name in serving)

        return SparkStatus(
            self.kind,
            str(self.home),
            self.page,
            self.master,
            self.environment,
            tuple(state(daemon) for daemon in stored.daemons),
        )

    def down(self) -> bool:
        """Stops every daemon and what it started, and removes the cluster. Returns whether there was one."""
        if not ours(self.folder):
            return False
        with changing(self.home, f"repl lab spark {self.kind} down", _WAIT_S):
            try:
                self.stored = self._load()
            except LabError:
                self.stored = None  # a record that is unreadable: what runs is killed by its variable
            if self.stored is not None:
                marks = [self._mark(daemon) for daemon in self.stored.daemons]
                processes.stop(marks[1:], grace=_STOP_GRACE_S)  # a worker ends its executors
                processes.stop(marks[:1], grace=_STOP_GRACE_S)
                self._kill_all(self.stored.id)
            self._kill_all(self._new_id())
            shutil.rmtree(self.folder)
            self.stored = None
        return True

    def _load(self) -> StoredSpark | None:
        file = self.folder / _RECORD
        try:
            return msgspec.json.decode(file.read_bytes(), type=StoredSpark)
        except FileNotFoundError:
            return None
        except (msgspec.DecodeError, UnicodeDecodeError) as problem:
            raise LabError(
                f"is not a cluster of this version of the lab: {problem}",
                f"repl lab spark {self.kind} down, and up again",
                where=str(file),
            ) from problem

    def _existing(self) -> StoredSpark:
        self.stored = self.stored or self._load()
        if self.stored is None:
            raise LabError(
                f"there is no cluster of the kind {self.kind} in this lab",
                f"repl lab spark {self.kind} up",
                where=str(self.home),
            )
        return self.stored

    def _daemon(self, name: str) -> SparkDaemon:
        daemons = self._existing().daemons
        for daemon in daemons:
            if daemon.name == name:
                return daemon
        raise LabError(
            f"there is no {name!r} in it", f"it has {', '.join(daemon.name for daemon in daemons)}"
        )

    def _mark(self, daemon: SparkDaemon) -> str:
        """Returns the mark of a daemon: a Java property that no other process has."""
        return f"-Drepl.lab={self._existing().id}:{daemon.name}"

    def _new_id(self) -> str:
        """Returns the id of a new cluster. It follows from the folder, so that it needs no record."""
        return hashlib.sha256(os.fsencode(self.folder.resolve())).hexdigest()[:16]

    def _kill_all(self, cluster: str) -> None:
        """Kills every daemon of the cluster with this id, and all that they started."""
        processes.kill_with_variable(f"{MARK}=-Drepl.lab={cluster}:", prefix=True)

    def _log(self, daemon: SparkDaemon) -> Path:
        return self.folder / f"{daemon.name}.log"

    def _require_place(self) -> None:
        """Raises LabError for a folder whose path YARN's scripts would split: they do not quote it."""
        if self.kind is SparkCluster.YARN and re.search(r"[\s,;&|<>()*?'\"`$\\]", str(self.folder)):
            raise LabError(
                "YARN runs no application below a path with white space, a comma or a character of the shell",
                "choose another --home (or REPL_LAB_HOME)",
                where=str(self.folder),
            )

    def _require_memory(self, workers: int) -> None:
        needed = (workers + 1) * _DAEMON_MB
        free = next(
            int(line.split()[1]) // 1024
            for line in Path("/proc/meminfo").read_text().splitlines()
            if line.startswith("MemAvailable:")
        )
        if free < needed:
            raise LabError(
                f"the machine has {free} MB of memory left, and a {self.kind.manager} with {workers} "
                f"{self.kind.worker}s takes {needed} MB, without executors",
                "end other programs, or choose fewer with --workers",
            )

    def _require_same(
        self, stored: StoredSpark, workers: int | None, memory_mb: int | None, cores: int | None
    ) -> None:
        existing = (len(stored.daemons) - 1, stored.memory_mb, stored.cores)
        chosen = (workers, memory_mb, cores)
        if any(new not in (None, old) for new, old in zip(chosen, existing, strict=True)):
            raise LabError(
                "there is a cluster already, with {} {}s of {} MB and {} cores each".format(
                    existing[0], self.kind.worker, *existing[1:]
                ),
                f"repl lab spark {self.kind} down first, or another --home",
                where=str(self.folder),
            )

    def _create(self, workers: int, memory_mb: int, cores: int) -> StoredSpark:
        claim(self.folder)
        self._kill_all(self._new_id())  # what is left of a cluster whose folder was removed
        ports = free_ports()
        names = [self.kind.manager, *(f"{self.kind.worker}{number + 1}" for number in range(workers))]
        daemons = tuple(SparkDaemon(name, tuple(next(ports) for _ in range(5))) for name in names)
        stored = StoredSpark(self._new_id(), daemons, memory_mb, cores)
        self.conf.mkdir(mode=0o700)
        if self.kind is SparkCluster.YARN:
            for name, settings in _yarn_settings(self.folder, stored).items():
                write(self.conf / f"{name}.xml", _xml(settings))
        else:
            settings = {
                "spark.authenticate": "true",
                "spark.network.crypto.enabled": "true",
                "spark.authenticate.secret": secrets.token_hex(32),
            }
            text = "".join(f"{key} {value}\n" for key, value in settings.items())
            write(self.conf / "spark-defaults.conf", text, secret=True)
        write(self.conf / "log4j2.properties", log4j2("WARN"))
        write(self.folder / _RECORD, json.dumps(asdict(stored), indent=1))
        return stored

    def _start(
        self, java: str, spark: Path, jars: str, daemons: tuple[SparkDaemon, ...], timeout: float
    ) -> None:
        running = processes.find([self._mark(daemon) for daemon in daemons])
        missing = [daemon for daemon in daemons if self._mark(daemon) not in running]
        for daemon in missing:
            for port in daemon.ports:
                require_free_port("127.0.0.1", port, f"repl lab spark {self.kind} down, and up again")
        logged = {daemon.name: size_of(self._log(daemon)) for daemon in daemons}
        what = f"starting {', '.join(daemon.name for daemon in missing)}"
        if missing:
            self.report(what, 0, 1)
        try:
            for daemon in missing:
                if self.kind is SparkCluster.YARN:
                    command, environ = self._yarn_command(java, jars, spark, daemon), dict(os.environ)
                else:
                    command, environ = self._standalone_command(java, spark, daemon)
                environ[MARK] = self._mark(daemon)
                processes.spawn(self._mark(daemon), command, self._log(daemon), environ)
            self._wait_until_serving(daemons, logged, timeout)
        except BaseException:
            for daemon in missing:
                self.kill(daemon.name)
            raise
        if missing:
            self.report(what, 1, 1)

    def _wait_until_serving(
        self, daemons: tuple[SparkDaemon, ...], logged: Mapping[str, int], timeout: float
    ) -> None:
        deadline = time.monotonic() + timeout
        while True:
            serving = self._serving()
            waiting = [daemon.name for daemon in daemons if daemon.name not in serving]
            if not waiting:
                return
            running = processes.find([self._mark(daemon) for daemon in daemons])
            for daemon in daemons:
                if self._mark(daemon) not in running:
                    raise LabError(
                        f"{daemon.name} died. Its last words:\n"
                        f"{last_lines(self._log(daemon), logged[daemon.name])}",
                        "see the whole log",
                        where=str(self._log(daemon)),
                    )
            if time.monotonic() > deadline:
                raise LabError(
                    f"{', '.join(waiting)} did not serve within {timeout:.0f} s",
                    "is the machine very busy? Try again, or choose fewer with --workers",
                    where=str(self.folder),
                )
            time.sleep(0.2)

    def _serving(self) -> frozenset[str]:
        """Returns the manager where it answers, and the workers that it counts on."""
        yarn = self.kind is SparkCluster.YARN
        url = f"{self.page}/{'ws/v1/cluster/nodes' if yarn else 'json/'}"
        try:
            with _LOOPBACK.open(url, timeout=5) as answer:
                facts = json.load(answer)
        except (OSError, ValueError, HTTPException):
            return frozenset()
        if yarn:
            nodes = (facts.get("nodes") or {}).get("node", ())
            ports = {int(node["id"].rpartition(":")[2]) for node in nodes if node["state"] == "RUNNING"}
        else:
            ports = {int(worker["port"]) for worker in facts["workers"] if worker["state"] == "ALIVE"}
        manager, *workers = self._existing().daemons
        return frozenset({manager.name, *(daemon.name for daemon in workers if daemon.ports[1] in ports)})

    def _yarn_command(self, java: str, jars: str, spark: Path, daemon: SparkDaemon) -> list[str]:
        manager = daemon.name == self.kind.manager
        main = "resourcemanager.ResourceManager" if manager else "nodemanager.NodeManager"
        home = self.folder / daemon.name
        page, main_port, localizer, *_ = daemon.ports
        properties = {
            "yarn.nodemanager.webapp.address": f"127.0.0.1:{page}",
            "yarn.nodemanager.address": f"127.0.0.1:{main_port}",
            "yarn.nodemanager.localizer.address": f"127.0.0.1:{localizer}",
            "yarn.nodemanager.local-dirs": f"{home}/local",
            "yarn.nodemanager.log-dirs": f"{home}/logs",
        }
        given = (
            []
            if manager
            else [word for key, value in properties.items() for word in ("-D", f"{key}={value}")]
        )
        return [
            *(java, "-Xmx256m", *_JVM, f"-Dhadoop.home.dir={self.folder}", self._mark(daemon)),
            f"-Dlog4j2.configurationFile={self.conf / 'log4j2.properties'}",
            *("-cp", os.pathsep.join((str(self.conf), jars, f"{spark}/jars/*"))),
            *(f"{_SPARK_YARN}.{main}", *given),
        ]

    def _standalone_command(
        self, java: str, spark: Path, daemon: SparkDaemon
    ) -> tuple[list[str], dict[str, str]]:
        stored = self._existing()
        page, port, *_ = daemon.ports
        words = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(page)]
        main = "master.Master"
        if daemon.name != self.kind.manager:
            main = "worker.Worker"
            words += ["-c", str(stored.cores), "-m", f"{stored.memory_mb}m"]
            words += ["-d", str(self.folder / daemon.name), self.master]
        options = (*_JVM, self._mark(daemon), f"-Dlog4j2.configurationFile={self.conf / 'log4j2.properties'}")
        environ = {
            **os.environ,
            "JAVA_HOME": str(Path(java).resolve().parent.parent),
            "SPARK_HOME": str(spark),
            "SPARK_CONF_DIR": str(self.conf),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": shlex.join(options),  # Spark's launcher splits it as a shell does
            "PYSPARK_PYTHON": sys.executable,
        }
        return [str(spark / "bin" / "spark-class"), f"org.apache.spark.deploy.{main}", *words], environ


def _yarn_settings(folder: Path, stored: StoredSpark) -> dict[str, dict[str, str]]:
    """Returns the settings by name of their file. Times are short, so that a lost machine shows soon."""
    page, address, scheduler, tracker, admin = stored.daemons[0].ports
    prefix = "yarn.resourcemanager"
    return {
        "core-site": {"fs.defaultFS": "file:///", "hadoop.tmp.dir": str(folder / "scratch")},
        "yarn-site": {
            f"{prefix}.hostname": "127.0.0.1",
            f"{prefix}.webapp.address": f"127.0.0.1:{page}",
            f"{prefix}.address": f"127.0.0.1:{address}",
            f"{prefix}.scheduler.address": f"127.0.0.1:{scheduler}",
            f"{prefix}.resource-tracker.address": f"127.0.0.1:{tracker}",
            f"{prefix}.admin.address": f"127.0.0.1:{admin}",
            # A ResourceManager that starts again goes on with the applications that run.
            f"{prefix}.recovery.enabled": "true",
            f"{prefix}.store.class": f"{_SPARK_YARN}.resourcemanager.recovery.FileSystemRMStateStore",
            f"{prefix}.fs.state-store.uri": f"file://{folder}/state",
            "yarn.nm.liveness-monitor.expiry-interval-ms": "15000",
            "yarn.scheduler.minimum-allocation-mb": "64",
            "yarn.nodemanager.hostname": "127.0.0.1",
            "yarn.nodemanager.resource.memory-mb": str(stored.memory_mb),
            "yarn.nodemanager.resource.cpu-vcores": str(stored.cores),
            "yarn.nodemanager.vmem-check-enabled": "false",
            # A disk that is nearly full is still good enough for a trial.
            "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
            "yarn.nodemanager.env-whitelist": f"JAVA_HOME,{MARK}",
        },
        "capacity-scheduler": {
            "yarn.scheduler.capacity.root.queues": "default",
            "yarn.scheduler.capacity.root.default.capacity": "100",
            "yarn.scheduler.capacity.maximum-am-resource-percent": "0.5",
        },
    }


def _xml(settings: Mapping[str, str]) -> str:
    properties = "".join(
        f"<property><name>{escape(key)}</name><value>{escape(value)}</value></property>\n"
        for key, value in settings.items()
    )
    return f"<configuration>\n{properties}</configuration>\n"

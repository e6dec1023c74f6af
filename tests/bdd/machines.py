"""Machines that die and come back: each has a home, and a network namespace where these are permitted.

A machine that dies is cut off before its processes are killed: brokers hear nothing more of it, as of a real
machine without power. Where namespaces are not permitted, its processes are killed at once, and the kernel
closes their connections.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from runtime.contract.spec import jobspec
from tests.commands import REPL, environment
from tests.network import Host, network
from tests.processes import freeze, kill_together, thaw, words_of
from tests.records import PATIENCE_S


@dataclass
class Machine:
    """All that runs below one REPL_HOME on a host: the processes of a job, and a standby."""

    home: Path
    host: Host
    standbys: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def through(self) -> tuple[str, ...]:
        """Runs a command there. Where there are namespaces, the machine has a name of its own."""
        if not self.host.namespace:
            return ()
        named = ("unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', self.host.namespace)
        return (*self.host.through, *named)

    @property
    def log(self) -> Path:
        return self.home.with_suffix(".log")

    def processes(self) -> list[psutil.Process]:
        found = []
        for one in psutil.process_iter():
            with suppress(psutil.Error):
                if one.environ().get("REPL_HOME") == str(self.home):
                    found.append(one)
        return found

    def stand_by(self, job: str, topology: Path) -> None:
        with self.log.open("a") as log:
            started = subprocess.Popen(
                [*self.through, *REPL, "standby", job, str(topology)],
                env=environment({"REPL_HOME": str(self.home), "PYTHONUNBUFFERED": "1"}),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.standbys.append(started)

    def said(self, text: str) -> bool:
        return text in self.log.read_text()

    def runs_the_job(self) -> bool:
        return any("runtime/driver/main.py" in " ".join(words_of(one)) for one in self.processes())

    def rate_limit(self, job: str) -> int | None:
        """By which the next start of the job here would go."""
        spec = jobspec.decode((self.home / "jobs" / job / "spec.json").read_bytes())
        return spec.flows[0].rate_limit

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """Every process stands still, as on a machine that is suspended."""
        processes = self.processes()
        freeze(processes)
        try:
            yield
        finally:
            thaw(processes)

    def die(self) -> None:
        self.host.cut()
        kill_together(self.processes())
        for one in self.standbys:
            one.wait(PATIENCE_S)

    def come_back(self) -> None:
        self.host.restore()


@dataclass(frozen=True)
class Machines:
    """`host` is the address of this machine, where brokers listen, as the others reach it."""

    host: str
    a: Machine
    b: Machine

    def __iter__(self) -> Iterator[Machine]:
        return iter((self.a, self.b))


@contextmanager
def two_machines(folder: Path) -> Iterator[Machines]:
    with network(2) as made:
        a, b = (Machine(folder / letter, host) for letter, host in zip("ab", made.hosts, strict=True))
        machines = Machines(made.address, a, b)
        try:
            yield machines
        finally:
            for machine in machines:
                machine.die()

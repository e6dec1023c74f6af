"""Machines that die and come back: each has a home, and a network namespace where these are permitted.

A machine that dies is cut off before its processes are killed: brokers hear nothing more of it, as of a real
machine without power. Where namespaces are not permitted, its processes are killed at once, and the kernel
closes their connections.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from runtime.contract.spec import jobspec
from tests.commands import REPL, environment
from tests.processes import kill_together, words_of
from tests.records import PATIENCE_S


@dataclass
class Machine:
    """All that runs below one REPL_HOME: the supervisor, watchman, JVM, driver and slots of a job, a standby.

    `name` is that of its network namespace and of its cable; empty where it has none.
    """

    home: Path
    name: str = ""
    standbys: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def through(self) -> tuple[str, ...]:
        return ("ip", "netns", "exec", self.name) if self.name else ()

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

    def die(self) -> None:
        if self.name:
            _ip("link", "set", self.name, "down")
        kill_together(self.processes())
        for one in self.standbys:
            one.wait(PATIENCE_S)

    def come_back(self) -> None:
        if self.name:
            _ip("link", "set", self.name, "up")


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
    number = os.getpid() % 10**6
    bridge, net = f"rm{number}", f"10.215.{number % 250}"
    names = [f"rm{number}{letter}" for letter in "ab"]
    try:
        try:
            _lay(bridge, net, names)
        except (OSError, subprocess.CalledProcessError):
            print("no network namespaces here: a machine is its processes", flush=True)
            made = Machines("127.0.0.1", *(Machine(folder / letter) for letter in "ab"))
        else:
            made = Machines(f"{net}.1", *(Machine(folder / name[-1], name) for name in names))
        try:
            yield made
        finally:
            for machine in made:
                machine.die()
    finally:
        if shutil.which("ip"):
            for name in names:
                subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
            subprocess.run(["ip", "link", "del", bridge], capture_output=True, check=False)


def _lay(bridge: str, net: str, names: list[str]) -> None:
    """A bridge with our address, and a namespace at each of its cables."""
    _ip("link", "add", bridge, "type", "bridge")
    _ip("addr", "add", f"{net}.1/24", "dev", bridge)
    _ip("link", "set", bridge, "up")
    for number, name in enumerate(names, 2):
        _ip("netns", "add", name)
        _ip("-n", name, "link", "set", "lo", "up")
        _ip("link", "add", name, "type", "veth", "peer", "name", "near", "netns", name)
        _ip("-n", name, "addr", "add", f"{net}.{number}/24", "dev", "near")
        _ip("-n", name, "link", "set", "near", "up")
        _ip("link", "set", name, "master", bridge)
        _ip("link", "set", name, "up")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], capture_output=True, check=True, timeout=120)

"""The links between the copying processes and the two clusters, cut and restored.

Where network namespaces are permitted, the copying processes live in one, with a cable to each cluster: a cut
cable loses packets, and nobody is told. Elsewhere the brokers of the cluster are stopped for the time of the
cut: connections stay open, and nothing answers.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from runtime.lab import processes
from runtime.lab.lab import Lab

CLUSTERS = ("dc1", "dc2")


class Links(Protocol):
    """`hosts` are where the clusters listen, `prefix` puts a command at the other end of the cables."""

    hosts: dict[str, str]
    prefix: tuple[str, ...]

    def cut(self, lab: Lab, cluster: str) -> None: ...
    def restore(self, lab: Lab, cluster: str) -> None: ...


class StoppedBrokers:
    def __init__(self) -> None:
        self.hosts = dict.fromkeys(CLUSTERS, "127.0.0.1")
        self.prefix: tuple[str, ...] = ()

    def cut(self, lab: Lab, cluster: str) -> None:
        for broker in running(lab, cluster):
            lab.pause(broker)

    def restore(self, lab: Lab, cluster: str) -> None:
        for broker in running(lab, cluster):
            lab.unpause(broker)


class Namespace:
    def __init__(self) -> None:
        number = os.getpid()
        self.name = f"repl-chaos-{number}"
        self.prefix: tuple[str, ...] = ("ip", "netns", "exec", self.name)
        self._cables = {
            one: f"rc{number % 10**6}{letter}" for one, letter in zip(CLUSTERS, "ab", strict=True)
        }
        nets = {one: f"10.213.{number % 120 * 2 + at}" for at, one in enumerate(CLUSTERS)}
        self.hosts = {one: f"{net}.1" for one, net in nets.items()}
        self._far = {one: f"{net}.2" for one, net in nets.items()}

    def lay(self) -> None:
        _ip("netns", "add", self.name)
        self._inside("link", "set", "lo", "up")
        for cluster, cable in self._cables.items():
            end = f"{cable}x"
            _ip("link", "add", cable, "type", "veth", "peer", "name", end, "netns", self.name)
            _ip("addr", "add", f"{self.hosts[cluster]}/24", "dev", cable)
            _ip("link", "set", cable, "up")
            self._inside("addr", "add", f"{self._far[cluster]}/24", "dev", end)
            self._inside("link", "set", end, "up")

    def remove(self) -> None:
        subprocess.run(["ip", "netns", "del", self.name], capture_output=True, check=False)

    def cut(self, lab: Lab, cluster: str) -> None:
        """At the far end: the cluster stays reachable for everybody else."""
        self._inside("link", "set", f"{self._cables[cluster]}x", "down")

    def restore(self, lab: Lab, cluster: str) -> None:
        self._inside("link", "set", f"{self._cables[cluster]}x", "up")

    def _inside(self, *arguments: str) -> None:
        _ip("-n", self.name, *arguments)


@contextmanager
def links() -> Iterator[Links]:
    namespace = Namespace()
    try:
        try:
            namespace.lay()
        except (OSError, subprocess.CalledProcessError):
            print("chaos: no network namespaces here: cut links are stopped brokers", flush=True)
            yield StoppedBrokers()
        else:
            yield namespace
    finally:
        if shutil.which("ip"):
            namespace.remove()


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], capture_output=True, check=True, timeout=20)


def running(lab: Lab, cluster: str) -> list[str]:
    """The addresses (dc1:2) of the brokers that have a process."""
    return [f"{name}:{node}" for name, node in sorted(processes.find([lab.clusters[cluster]]))]

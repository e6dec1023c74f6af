"""The links between the copying processes and the two clusters, cut and restored.

Where network namespaces are permitted, each cluster lives in one and the copying processes in another, with a
cable to each cluster: a cut cable loses packets, and nobody is told. Elsewhere the brokers of the cluster are
stopped for the time of the cut: connections stay open, and nothing answers.
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
    """`hosts` are where the clusters listen. `prefix` puts a command at the other end of the cables,
    `beside` puts one where the cluster is.
    """

    hosts: dict[str, str]
    prefix: tuple[str, ...]
    beside: dict[str, tuple[str, ...]]

    def cut(self, lab: Lab, cluster: str) -> None: ...
    def restore(self, lab: Lab, cluster: str) -> None: ...


class StoppedBrokers:
    def __init__(self) -> None:
        self.hosts = dict.fromkeys(CLUSTERS, "127.0.0.1")
        self.prefix: tuple[str, ...] = ()
        self.beside: dict[str, tuple[str, ...]] = dict.fromkeys(CLUSTERS, ())

    def cut(self, lab: Lab, cluster: str) -> None:
        for broker in running(lab, cluster):
            lab.pause(broker)

    def restore(self, lab: Lab, cluster: str) -> None:
        for broker in running(lab, cluster):
            lab.unpause(broker)


class Namespaces:
    """One a cluster, one for what copies: a cluster has a cable to that (`far`) and one to us (`near`)."""

    def __init__(self) -> None:
        number = os.getpid() % 10**6
        self._copying = f"repl-chaos-{number}"
        self._of = {one: f"{self._copying}-{one}" for one in CLUSTERS}
        self._cables = {one: f"rc{number}{letter}" for one, letter in zip(CLUSTERS, "ab", strict=True)}
        self._nets = {one: number % 120 * 2 + at for at, one in enumerate(CLUSTERS)}
        self.hosts = {one: f"10.213.{net}.1" for one, net in self._nets.items()}
        self.prefix: tuple[str, ...] = ("ip", "netns", "exec", self._copying)
        self.beside: dict[str, tuple[str, ...]] = {
            one: ("ip", "netns", "exec", name) for one, name in self._of.items()
        }

    def lay(self) -> None:
        for name in (self._copying, *self._of.values()):
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
        for cluster, name in self._of.items():
            net, cable, copying = self._nets[cluster], self._cables[cluster], ("-n", self._copying)
            _ip("link", "add", cable, "type", "veth", "peer", "name", "near", "netns", name)
            _end((), cable, f"10.213.{net}.2/24")
            _end(("-n", name), "near", f"{self.hosts[cluster]}/24")
            _ip(
                "-n",
                name,
                "link",
                "add",
                "far",
                "type",
                "veth",
                "peer",
                "name",
                cable,
                "netns",
                self._copying,
            )
            _end(("-n", name), "far", f"10.214.{net}.1/24")
            _end(copying, cable, f"10.214.{net}.2/24")
            _ip(*copying, "route", "add", f"{self.hosts[cluster]}/32", "via", f"10.214.{net}.1")

    def remove(self) -> None:
        for name in (self._copying, *self._of.values()):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    def cut(self, lab: Lab, cluster: str) -> None:
        """Of the cable between them alone, at the cluster's end: its own, and our way to it, are whole."""
        _ip("-n", self._of[cluster], "link", "set", "far", "down")

    def restore(self, lab: Lab, cluster: str) -> None:
        _ip("-n", self._of[cluster], "link", "set", "far", "up")


@contextmanager
def links() -> Iterator[Links]:
    namespaces = Namespaces()
    try:
        try:
            namespaces.lay()
        except (OSError, subprocess.CalledProcessError):
            print("chaos: no network namespaces here: cut links are stopped brokers", flush=True)
            yield StoppedBrokers()
        else:
            yield namespaces
    finally:
        if shutil.which("ip"):
            namespaces.remove()


def _end(where: tuple[str, ...], cable: str, address: str) -> None:
    _ip(*where, "addr", "add", address, "dev", cable)
    _ip(*where, "link", "set", cable, "up")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], capture_output=True, check=True, timeout=120)


def running(lab: Lab, cluster: str) -> list[str]:
    """The addresses (dc1:2) of the brokers that have a process."""
    known = lab.clusters[cluster]
    live = processes.find(known.marks)
    return [f"{cluster}:{node.id}" for node in known.nodes if known.mark(node) in live]

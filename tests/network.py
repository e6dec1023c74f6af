"""Hosts on a network of their own, which can be cut off: network namespaces where these are permitted.

A bridge with an address of this machine connects them, so brokers that listen there are reached by all hosts.
A host that is cut off loses its packets, and no other host is told. The cable of a host can be made narrow.
Where namespaces are not permitted, every host is this machine itself.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

LOOPBACK = "127.0.0.1"
_NEAR = "near"  # the host's end of its cable


@dataclass(frozen=True)
class Host:
    """`namespace` is the name of its network namespace and of its cable; empty where it has none."""

    address: str = LOOPBACK
    namespace: str = ""

    @property
    def through(self) -> tuple[str, ...]:
        """Runs a command on this host."""
        return ("ip", "netns", "exec", self.namespace) if self.namespace else ()

    def cut(self) -> None:
        """Cuts its cable. Without a namespace it does nothing."""
        if self.namespace:
            _ip("link", "set", self.namespace, "down")

    def restore(self) -> None:
        """Connects its cable again."""
        if self.namespace:
            _ip("link", "set", self.namespace, "up")

    def limit(self, bytes_per_s: float | None) -> None:
        """Lets its cable carry so many bytes a second in each direction; None removes the limit."""
        verb, bucket = "del", tuple[str, ...]()
        if bytes_per_s is not None:
            rate = ("rate", f"{bytes_per_s * 8:.0f}bit")
            verb, bucket = "replace", ("tbf", *rate, "burst", "256kb", "latency", "50ms")
        for namespace, device in self._ends:
            _run("tc", *namespace, "qdisc", verb, "dev", device, "root", *bucket)

    def carried(self) -> list[int]:
        """Returns the bytes to it and from it since its cable has a limit."""
        return [
            json.loads(_run("tc", "-s", "-j", *namespace, "qdisc", "show", "dev", device, "root"))[0]["bytes"]
            for namespace, device in self._ends
        ]

    @property
    def _ends(self) -> list[tuple[tuple[str, ...], str]]:
        """Of its cable: the namespace as `tc` names it, and the device there that sends into the cable."""
        return [((), self.namespace), (("-n", self.namespace), _NEAR)]


@dataclass(frozen=True)
class Network:
    """`address` is this machine's, as the hosts reach it."""

    address: str
    hosts: tuple[Host, ...]


@contextmanager
def network(hosts: int) -> Iterator[Network]:
    """Makes the hosts, and removes them at the end. What runs on them must have ended by then."""
    number = os.getpid() % 10**6
    bridge, net = f"rn{number}", f"10.{216 + number // 250 % 16}.{number % 250}"
    made = tuple(Host(f"{net}.{at + 2}", f"rn{number}h{at}") for at in range(hosts))
    try:
        try:
            _lay(bridge, net, made)
        except (OSError, subprocess.CalledProcessError):
            print("no network namespaces here: a host is its processes", flush=True)
            yield Network(LOOPBACK, tuple(Host() for _ in range(hosts)))
        else:
            yield Network(f"{net}.1", made)
    finally:
        if shutil.which("ip"):
            for one in made:
                subprocess.run(["ip", "netns", "del", one.namespace], capture_output=True, check=False)
            subprocess.run(["ip", "link", "del", bridge], capture_output=True, check=False)


def _lay(bridge: str, net: str, hosts: tuple[Host, ...]) -> None:
    """A bridge with our address, and a namespace at each of its cables."""
    _ip("link", "add", bridge, "type", "bridge")
    _ip("addr", "add", f"{net}.1/24", "dev", bridge)
    _ip("link", "set", bridge, "up")
    for host in hosts:
        name = host.namespace
        _ip("netns", "add", name)
        _ip("-n", name, "link", "set", "lo", "up")
        _ip("link", "add", name, "type", "veth", "peer", "name", _NEAR, "netns", name)
        _ip("-n", name, "addr", "add", f"{host.address}/24", "dev", _NEAR)
        _ip("-n", name, "link", "set", _NEAR, "up")
        _ip("link", "set", name, "master", bridge)
        _ip("link", "set", name, "up")


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> bytes:
    return subprocess.run(command, capture_output=True, check=True, timeout=120).stdout

"""Hosts on a network of their own, which can be cut off: network namespaces where these are permitted.

A bridge with an address of this machine connects them, so brokers that listen there are reached by all hosts.
A host that is cut off loses its packets, and no other host is told. Where namespaces are not permitted, every
host is this machine itself.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

LOOPBACK = "127.0.0.1"


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
        _ip("link", "add", name, "type", "veth", "peer", "name", "near", "netns", name)
        _ip("-n", name, "addr", "add", f"{host.address}/24", "dev", "near")
        _ip("-n", name, "link", "set", "near", "up")
        _ip("link", "set", name, "master", bridge)
        _ip("link", "set", name, "up")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], capture_output=True, check=True, timeout=120)

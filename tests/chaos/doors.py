"""A proxy before each cluster, which the copy goes through: it makes a link slow or narrow, or resets it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from msgspec.structs import replace

from runtime.contract.spec.jobspec import JobSpec
from runtime.lab.cluster import Listener
from runtime.lab.lab import Lab
from tests.chaos.links import Links
from tests.ports import free_port
from tests.toxiproxy import Proxies, proxied

_LISTENER = "DOOR"


def door(host: str, brokers: int) -> Listener:
    """What the brokers tell those who come through it."""
    return Listener(_LISTENER, {node: f"{host}:{free_port()}" for node in range(1, brokers + 1)})


@contextmanager
def doors(lab: Lab, links: Links, binary: Path | None) -> Iterator[Mapping[str, Proxies]]:
    """By cluster; none without the binary."""
    if binary is None:
        yield {}
        return
    with ExitStack() as stack:
        found = {}
        for name, cluster in lab.clusters.items():
            really = cluster.listener(_LISTENER)
            upstreams = {told: really[node] for node, told in cluster.spec.listeners[0].advertised.items()}
            found[name] = stack.enter_context(
                proxied(binary, upstreams, links.hosts[name], links.beside[name])
            )
        yield found


def through(lab: Lab, spec: JobSpec) -> JobSpec:
    """The job, as one that knows the clusters by their doors."""
    clusters = {
        name: replace(known, bootstrap=",".join(listener.advertised.values()))
        for name, known in spec.clusters.items()
        for listener in lab.clusters[name].spec.listeners
    }
    return replace(spec, clusters={**spec.clusters, **clusters})

"""The control plane's way to a lab's clusters."""

from collections.abc import Mapping
from typing import Any

from planner.kafka import ClusterEndpoint, run
from planner.model.observed import Observed
from planner.model.topology import Cluster
from planner.observe.observer import observe
from runtime.lab.lab import Lab


def endpoint(lab: Lab, cluster: str) -> ClusterEndpoint:
    found = lab.clusters[cluster]
    settings = {key: str(value) for key, value in found.client.items() if key != "bootstrap.servers"}
    return ClusterEndpoint(cluster, found.bootstrap, settings)


def observed(
    endpoints: Mapping[str, ClusterEndpoint],
    *more: Any,
    pins: Mapping[str, str] | None = None,
    **options: Any,
) -> Observed:
    """What `observe` returns for these clusters; `more` and `options` are its arguments."""
    clusters = {
        name: Cluster(name, bootstrap=one.bootstrap, id=(pins or {}).get(name))
        for name, one in endpoints.items()
    }
    return run(observe(clusters, endpoints, *more, **options))

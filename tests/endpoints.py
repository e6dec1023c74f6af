"""The control plane's way to a lab's clusters."""

from planner.kafka import ClusterEndpoint
from runtime.lab.lab import Lab


def endpoint(lab: Lab, cluster: str) -> ClusterEndpoint:
    found = lab.clusters[cluster]
    settings = {key: str(value) for key, value in found.client.items() if key != "bootstrap.servers"}
    return ClusterEndpoint(cluster, found.bootstrap, settings)

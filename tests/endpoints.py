"""The control plane's way to a lab's clusters."""

from planner.kafka import Endpoint
from runtime.lab.lab import Lab


def endpoint(lab: Lab, cluster: str) -> Endpoint:
    found = lab.clusters[cluster]
    settings = {key: str(value) for key, value in found.client.items() if key != "bootstrap.servers"}
    return Endpoint(cluster, found.bootstrap, settings)

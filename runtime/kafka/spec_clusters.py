"""This module opens a cluster of a job spec: it resolves the secrets and checks the pinned cluster id."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from runtime.contract.client import settings as client
from runtime.contract.client.secrets import ClientSecrets
from runtime.contract.spec.jobspec import ClusterSpec
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import WireError


class WrongCluster(WireError):
    """Another cluster answers than the pinned one; nothing is done there."""


class UnknownCluster(WireError):
    """A record names a cluster that is not in the spec with which the job was started."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the cluster {name!r} is not in the spec that this job was started with: it is not reached; "
            "an apply that starts the job anew brings it"
        )


def named(spec: ClusterSpec, client_id: str) -> ClusterSpec:
    """Returns the cluster with this client id, unless the topology sets one."""
    if "client.id" in spec.client:
        return spec
    return replace(spec, client={**spec.client, "client.id": client_id})


async def opened(name: str, spec: ClusterSpec, environ: Mapping[str, str]) -> KafkaCluster:
    """Opens the cluster. Raises WireError, WrongCluster, ClientSettingsError."""
    secrets = ClientSecrets(environ)
    settings = secrets.resolve(spec.bootstrap, spec.client)
    wire = client.wire_settings(spec.bootstrap, settings, secrets.token_command(name))
    cluster = await KafkaCluster.open(wire)
    if spec.id is not None and cluster.cluster_id != spec.id:
        await cluster.close()
        raise WrongCluster(f"{name} is cluster {cluster.cluster_id}, pinned is {spec.id}")
    return cluster

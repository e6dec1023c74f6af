"""This module writes client settings to files: for Kafka's tools, and to paste into a topology."""

from collections.abc import Mapping
from pathlib import Path

import yaml

from runtime.lab.brokers.properties import render
from runtime.lab.brokers.security import ADMIN
from runtime.lab.cluster import LabKafkaCluster
from runtime.lab.files import write


def write_for(cluster: LabKafkaCluster) -> None:
    """Writes the client files of each user of the cluster."""
    for user in cluster.users or (ADMIN,):
        for_java, for_topology = cluster.client_files(user)
        write(for_java, render(cluster.java_client(user)), secret=True)
        write(for_topology, _yaml(cluster.settings(user)))


def topology_file(home: Path) -> Path:
    """Returns the path of the lab's topology file."""
    return home / "topology.yaml"


def write_topology(home: Path, clusters: Mapping[str, LabKafkaCluster]) -> None:
    """Writes the `clusters:` section of a topology for this lab."""
    known = {}
    for name, cluster in clusters.items():
        client = cluster.settings()
        known[name] = {"bootstrap": cluster.bootstrap} | ({"client": client} if client else {})
    write(topology_file(home), _yaml({"clusters": known}))


def _yaml(value: object) -> str:
    text = yaml.safe_dump(value, sort_keys=False, default_flow_style=False)
    assert isinstance(text, str)
    return text

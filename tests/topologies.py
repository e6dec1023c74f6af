"""A topology in a file that a test changes between runs of the real command."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from runtime.lab.lab import Lab

SILENT = "127.0.0.1:9"  # no process listens there


class Reached(Protocol):
    """A cluster of a lab, or the helpers of one."""

    @property
    def bootstrap(self) -> str: ...


@dataclass
class Topology:
    """`write()` before each run. JSON is YAML too."""

    name: str
    file: Path
    clusters: dict[str, dict[str, Any]]
    topics: list[dict[str, Any]] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)

    def write(self) -> Path:
        body = {"apiVersion": "repl/v1", "name": self.name, "clusters": self.clusters, "topics": self.topics}
        self.file.write_text(json.dumps({**body, **self.more}, indent=1))
        return self.file

    def topic(self, name: str, cluster: str = "dc1", **declared: Any) -> dict[str, Any]:
        """Declare one more, or replace its declaration."""
        self.topics = [one for one in self.topics if one["name"] != name]
        self.topics.append({"name": name, "cluster": cluster, **declared})
        return self.topics[-1]


def at(lab: Lab, name: str, folder: Path, clusters: Iterable[str] = ("dc1",)) -> Topology:
    """A topology over clusters of a plain lab."""
    known = {cluster: {"bootstrap": lab.clusters[cluster].bootstrap} for cluster in clusters}
    return Topology(name, folder / f"{name}.yaml", known)


def declared(
    name: str, *topics: str, source: str = "dc1", destination: str = "dc2", **more: Any
) -> dict[str, Any]:
    """A flow as a topology declares it."""
    return {"name": name, "from": source, "to": destination, "topics": {"include": list(topics)}, **more}


def of_flows(clusters: Mapping[str, Reached], folder: Path, *flows: Mapping[str, Any]) -> Path:
    """Writes a topology of these clusters and flows."""
    known = {name: {"bootstrap": cluster.bootstrap} for name, cluster in clusters.items()}
    return Topology("audited", folder / "audited.yaml", known, more={"flows": list(flows)}).write()


def secured(
    lab: Lab, name: str, folder: Path, user: str, password: Mapping[str, str], cluster: str = "dc1"
) -> Topology:
    """The same over a SASL lab, as `user`; `password` is the reference that stands in the topology."""
    client = {key: value for key, value in lab.clusters[cluster].client.items() if key != "bootstrap.servers"}
    client |= {"sasl.username": user, "sasl.password": password}
    known = {cluster: {"bootstrap": lab.clusters[cluster].bootstrap, "client": client}}
    return Topology(name, folder / f"{name}.yaml", known)


def without_answer(folder: Path, name: str = "lonely", *clusters: str, **more: Any) -> Path:
    """Writes a topology of clusters that do not answer; its flow is `one`, where `more` has no flows."""
    flow = {"name": "one", "from": "dc1", "to": "dc2", "topics": {"include": ["orders"]}}
    addresses = {cluster: {"bootstrap": SILENT} for cluster in clusters or ("dc1", "dc2")}
    return Topology(name, folder / f"{name}.yaml", addresses, more={"flows": [flow]} | more).write()


SHOP_HEAD = """\
apiVersion: repl/v1
name: shop   # ours
clusters:
  dc1: {bootstrap: 127.0.0.1:1}
  dc2: {bootstrap: 127.0.0.1:1}
flows:
"""


def shop(folder: Path, flows: str) -> Path:
    """Writes a topology of these flows, as a person writes it, whose clusters do not answer."""
    file = folder / "shop.yaml"
    file.write_text(SHOP_HEAD + flows)
    return file

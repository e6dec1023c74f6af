"""The copy of a topology on lab clusters: the same flows, topics and groups, with other addresses."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import OFFSET_END, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from planner.config import load
from planner.drill.link import DrillLink
from planner.drill.load.records import LoadedTopic, load_of
from planner.graph.lints.transforms import changed_fields_of
from planner.graph.replication_graph import ReplicationGraph, replication_graph_of
from planner.model.topology import RUNNING, Flow, Job, Protect, SecretRef, Setting, Topology, Transform
from planner.render.topology import topology_yaml
from planner.workflows.lab import (
    KAFKA_VERSION,
    LINK,
    LabAction,
    LabChoices,
    act_on_lab,
    start_brokers,
    start_lab,
    stop_lab,
)
from planner.workflows.topology import HOME, kill_all_below, processes_below

Progress = Callable[[str], None]

PARTITIONS = 3
_MADE_WITHIN_S = 60.0
_MEMORY = "512m"
_FEWEST_CORES = 2
_LEFT_OUT = frozenset({"min.insync.replicas"})


@dataclass(frozen=True, slots=True)
class DrillRoute:
    """A topic that a flow copies, under its names at both sides.

    `filtered`: the flow may leave records out, or quarantine them.
    """

    flow: str
    source: str
    destination: str
    topic: str
    mirror: str
    transformed: bool
    filtered: bool = False


def scaled_down(topology: Topology, by_registry: Collection[str] = ()) -> tuple[Topology, tuple[str, ...]]:
    """Returns the topology as the lab's brokers can hold it, and what that leaves out.

    `by_registry` are the flows that go on to ask their schema registry.
    """
    small = f"each cluster is one broker of Kafka {KAFKA_VERSION}, or what a step needs"
    notes = [f"{small}; replication, min.insync.replicas are left out"]
    if secured := needs_authorizer(topology):
        notes.append(
            "the lab's brokers have an authorizer: acls, acls.sync and protect are applied; jobs, commands"
            " and clients of the drill are super users, so the rights of other principals are not tried"
        )
    if any(one.client.get("security.protocol") for one in topology.clusters.values()):
        how = "by SCRAM, without TLS" if secured else "without a login and without TLS"
        notes.append(f"clients connect to the lab's brokers {how}")
    jobs = {flow.job for flow in topology.flows.values()} | set(topology.jobs)
    declared = {name: topology.jobs.get(name, Job(name)) for name in sorted(jobs)}
    if any(one.launcher != "local" for one in declared.values()):
        notes.append("jobs run on this machine, whatever their launcher is")
    copy = replace(
        topology,
        clusters={
            name: replace(one, id=None, client={}, principal=None) for name, one in topology.clusters.items()
        },
        topics=tuple(
            replace(
                one,
                replication=None,
                config={key: value for key, value in one.config.items() if key not in _LEFT_OUT},
            )
            for one in topology.topics
        ),
        flows={
            name: replace(
                flow,
                replication=None,
                transform=flow.transform if name in by_registry else _without_registry(flow.transform),
            )
            for name, flow in topology.flows.items()
        },
        jobs={
            name: replace(
                one,
                launcher="local",
                master=f"local[{_cores(topology, name)}]",
                memory=_MEMORY,
                standby=0,
                conf={},
                options={},
                metrics_port=None,
            )
            for name, one in declared.items()
        },
        internal=replace(topology.internal, replication=None),
        policies=replace(topology.policies, require=()),
        # The samples were read: the copy is in another folder.
        drill=replace(topology.drill, samples=()),
    )
    if lossy := [name for name, flow in sorted(topology.flows.items()) if changed_fields_of(flow)]:
        notes.append(
            f"{', '.join(lossy)}: the failback is left out, because values that a transform changes do not"
            " compare equal after a round trip"
        )
    return copy, tuple(notes)


def needs_authorizer(topology: Topology) -> bool:
    """Returns whether brokers need an authorizer for what the topology declares."""
    flows = topology.flows.values()
    return bool(topology.acls) or any(one.protect is not Protect.OFF or one.acls_sync for one in flows)


def _without_registry(transform: Transform | None) -> Transform | None:
    if transform is None:
        return None
    return replace(
        transform,
        key=replace(transform.key, registry=None),
        value=replace(transform.value, registry=None),
    )


def _cores(topology: Topology, job: str) -> int:
    """Returns the cores of a job: each flow with a transform has a slot of its own, all others share one."""
    flows = [flow for flow in topology.flows.values() if flow.job == job]
    transforms = sum(flow.transform is not None for flow in flows)
    return max(_FEWEST_CORES, transforms + (transforms < len(flows)))


def routes_of(topology: Topology) -> list[DrillRoute]:
    """Returns a route for each topic that flows name, or that one of their regexes matches.

    A mirror that another flow copies on has no producers of its own, so it is no route.
    """
    graph: ReplicationGraph = replication_graph_of(topology, {}, offline=True)
    edges = [one for one in graph.every_edge if topology.flows[one.flow].state in RUNNING]
    mirrors = {one.destination for one in edges if one.source.topic != one.destination.topic}
    return [
        DrillRoute(
            one.flow,
            one.source.cluster,
            one.destination.cluster,
            one.source.topic,
            one.destination.topic,
            (transform := topology.flows[one.flow].transform) is not None,
            transform is not None and (transform.where is not None or topology.flows[one.flow].quarantines),
        )
        for one in edges
        if one.source not in mirrors
    ]


def _loaded(route: DrillRoute) -> LoadedTopic:
    places = (route.source, route.topic), (route.destination, route.mirror)
    return LoadedTopic(route.flow, route.topic, places)


@dataclass(frozen=True, slots=True)
class ReplicaNeeds:
    """What a scenario does to clusters: how many brokers they need, and which need a link of their own."""

    brokers: Mapping[str, int] = field(default_factory=dict)
    links: frozenset[str] = frozenset()


class Replica:
    """Lab clusters that hold the copy of a topology, in a folder of their own."""

    def __init__(
        self, topology: Topology, folder: Path, progress: Progress, needs: ReplicaNeeds = ReplicaNeeds()
    ) -> None:
        self.load = load_of(topology, map(_loaded, routes_of(topology)))
        self.topology, notes = scaled_down(topology, self.load.by_registry)
        self.notes = (*notes, *self.load.notes)
        self.routes = routes_of(self.topology)
        self._folder = folder.resolve()  # as processes below have it in their environment
        self.file = self._folder / "topology.yaml"
        # Hidden, so that they are no part of the topology in this folder.
        self._lab = self._folder / ".lab"
        self._home = self._folder / ".home"
        self._progress = progress
        self._needs = needs
        self._security = "sasl" if needs_authorizer(topology) else "plain"
        self._clients: dict[str, dict[str, Any]] = {}
        self._links: dict[str, DrillLink] = {}

    @contextmanager
    def running(self) -> Iterator["Replica"]:
        """Brings the clusters up with the topics that flows copy, and removes everything at the end.

        What an earlier drill left because it was killed is removed first.
        """
        self._remove()
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            self._start()
            yield self
        except KeyboardInterrupt:
            self._progress(
                "interrupted: the clusters and jobs are removed; once more stops at once, and the next drill "
                "removes them"
            )
            raise
        finally:
            self._remove()

    def client(self, cluster: str) -> dict[str, Any]:
        """Returns the settings of a client of a cluster."""
        return dict(self._clients[cluster])

    def flows(self) -> Mapping[str, Flow]:
        """Returns the flows as the copy declares them now: commands change their states."""
        return load(self.file).flows

    def lose(self, cluster: str, brokers: Sequence[int] = ()) -> None:
        """Kills every broker of a cluster at once, or these."""
        for one in [f"{cluster}:{number}" for number in brokers] or [cluster]:
            act_on_lab(self._lab, LabAction.KILL, one)

    def bring_back(self, cluster: str) -> None:
        """Starts the brokers of a cluster on their data, restores its link, and returns when it answers."""
        if cluster in self._links:
            self._links[cluster].restore()
        start_brokers(self._lab, cluster)

    def lose_machine(self) -> None:
        """Kills every job with its supervisor and removes their folder. Commands run elsewhere now."""
        kill_all_below(self._home)
        shutil.rmtree(self._home, ignore_errors=True)
        self._home = self._home.with_name(f"{self._home.name}-elsewhere")

    def processes(self) -> int:
        """Returns how many processes of jobs are left."""
        return processes_below(self._home)

    def topics(self, cluster: str) -> set[str]:
        """Returns the names of the topics that a cluster holds."""
        admin = AdminClient({**self.client(cluster), "log_level": 0})
        return set(admin.list_topics(timeout=_MADE_WITHIN_S).topics)

    def unknown_topics(self) -> list[tuple[str, str]]:
        """Returns topics with their clusters that are not internal, declared or copied by a flow."""
        known = {(one.cluster, one.name) for one in self.topology.topics}
        for route in self.routes:
            known |= {(route.source, route.topic), (route.destination, route.mirror)}
        return [
            (cluster, topic)
            for cluster in self.topology.clusters
            for topic in sorted(self.topics(cluster))
            if not topic.startswith("__") and (cluster, topic) not in known
        ]

    def delete_records(self, cluster: str, topics: Sequence[str]) -> None:
        """Moves the log start of every partition to its end, as retention does."""
        admin = AdminClient({**self.client(cluster), "log_level": 0})
        known = admin.list_topics(timeout=_MADE_WITHIN_S).topics
        ends = [
            TopicPartition(topic, number, OFFSET_END)
            for topic in topics
            for number in known[topic].partitions
        ]
        for one in admin.delete_records(ends).values():
            one.result(_MADE_WITHIN_S)

    def link(self, cluster: str) -> DrillLink:
        """Returns the link through which jobs and commands reach a cluster."""
        return self._links[cluster]

    def change(self, kind: str, name: str, changes: Mapping[str, Any], cluster: str = "") -> None:
        """Changes the declaration of a flow or of a topic, as an edit of the YAML does. Maps are merged."""
        tree = yaml.safe_load(self.file.read_text(encoding="utf-8"))
        entries = tree.setdefault(kind, [])
        found = [
            one
            for one in entries
            if one["name"] == name and cluster in ("", *_listed(one.get("cluster", "")))
        ]
        if not found:
            found = [{"name": name} | ({"cluster": cluster} if cluster else {})]
            entries += found
        for one in found:
            _merge(one, changes)
        self.file.write_text(yaml.safe_dump(tree, sort_keys=False), encoding="utf-8")
        self.topology = load(self.file)
        self.routes = routes_of(self.topology)

    def take_out(self, flows: Collection[str]) -> None:
        """Takes flows out of the topology's file; `repl apply` then ends them. Their topics stay."""
        tree = yaml.safe_load(self.file.read_text(encoding="utf-8"))
        tree["flows"] = [one for one in tree["flows"] if one["name"] not in flows]
        self.file.write_text(yaml.safe_dump(tree, sort_keys=False), encoding="utf-8")
        kept = {name: flow for name, flow in self.topology.flows.items() if name not in flows}
        self.topology = replace(self.topology, flows=kept)
        self.routes = [one for one in self.routes if one.flow not in flows]

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Runs a command of repl as an operator would, on the copy of the topology."""
        return subprocess.run(
            [sys.executable, "-m", "planner", *arguments],
            env={**os.environ, HOME: str(self._home), "NO_COLOR": "1"},
            cwd=self._folder,
            capture_output=True,
            text=True,
            check=False,
        )

    def _start(self) -> None:
        counts = {name: self._needs.brokers.get(name, 1) for name in self.topology.clusters}
        self._links = {name: DrillLink(counts[name]) for name in sorted(self._needs.links)}
        links = {name: link.addresses for name, link in self._links.items()}
        for brokers in sorted(set(counts.values())):
            names = ",".join(name for name, wanted in counts.items() if wanted == brokers)
            choices = LabChoices(
                clusters=names, brokers=brokers, security=self._security, ports="auto", links=links
            )
            lab = start_lab(self._lab, choices)
        for name, link in self._links.items():
            link.start(lab.clusters[name].listener(LINK))
        clusters = {
            name: replace(
                one,
                bootstrap=",".join(links[name].values()) if name in links else lab.clusters[name].bootstrap,
                client=_client_of(lab.clusters[name].settings()),
            )
            for name, one in self.topology.clusters.items()
        }
        self._clients = {name: dict(one.client) for name, one in lab.clusters.items()}
        self.topology = replace(self.topology, clusters=clusters)
        self.file.write_text(topology_yaml(self.topology), encoding="utf-8")
        declared = {(one.cluster, one.name) for one in self.topology.topics}
        for cluster in clusters:
            topics = {one.topic for one in self.routes if one.source == cluster}
            self._create(cluster, sorted(one for one in topics if (cluster, one) not in declared))

    def _create(self, cluster: str, topics: list[str]) -> None:
        if topics:
            admin = AdminClient({**self.client(cluster), "log_level": 0})
            made = admin.create_topics([NewTopic(one, PARTITIONS) for one in topics])
            for one in made.values():
                one.result(_MADE_WITHIN_S)

    def _remove(self) -> None:
        """Kills the jobs and what commands still run, stops the clusters and removes the folder."""
        for link in self._links.values():
            link.close()
        for home in {self._home, *self._folder.glob(".home*")}:
            kill_all_below(home)
        if self._lab.exists():
            stop_lab(self._lab, purge=True)
        shutil.rmtree(self._folder, ignore_errors=True)


def _client_of(settings: Mapping[str, str | dict[str, str]]) -> dict[str, Setting]:
    """Returns the settings as a topology has them. Passwords stay in the files of the lab."""
    return {
        key: value if isinstance(value, str) else SecretRef("file", value["file"])
        for key, value in settings.items()
    }


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _merge(tree: dict[str, Any], changes: Mapping[str, Any]) -> None:
    for key, value in changes.items():
        if isinstance(value, Mapping) and isinstance(tree.get(key), dict):
            _merge(tree[key], value)
        else:
            tree[key] = value


def flows_out_of(topology: Topology, cluster: str) -> list[Flow]:
    """Returns the running flows out of a cluster, by name."""
    return [
        flow
        for _, flow in sorted(topology.flows.items())
        if flow.source_cluster == cluster and flow.state in RUNNING
    ]


def clusters_to_lose(topology: Topology) -> list[str]:
    """Returns the clusters that running flows leave, in the order of the topology."""
    return [name for name in topology.clusters if flows_out_of(topology, name)]

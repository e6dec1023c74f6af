"""The copy of a topology on lab clusters: the same flows, topics and groups, with other addresses."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from planner.graph.replication_graph import ReplicationGraph, replication_graph_of
from planner.model.diagnostic import Failure, error
from planner.model.topology import RUNNING, Flow, Job, Protect, Topology
from planner.render.topology import topology_yaml
from planner.workflows.lab import LabAction, LabChoices, act_on_lab, start_brokers, start_lab, stop_lab
from planner.workflows.topology import HOME

PARTITIONS = 3
_MADE_WITHIN_S = 60.0
_MEMORY = "512m"
_LEFT_OUT = frozenset({"min.insync.replicas"})


@dataclass(frozen=True, slots=True)
class DrillRoute:
    """A topic that a flow copies, under its names at both sides."""

    flow: str
    source: str
    destination: str
    topic: str
    mirror: str
    transformed: bool


def scaled_down(topology: Topology) -> tuple[Topology, tuple[str, ...]]:
    """Returns the topology as single brokers without an authorizer can hold it, and what that leaves out."""
    notes = [
        "each cluster is one broker on this machine, so replication is 1 and min.insync.replicas is left out"
    ]
    if topology.acls or any(
        one.protect is not Protect.OFF or one.acls_sync for one in topology.flows.values()
    ):
        notes.append("the lab's brokers have no authorizer: acls, acls.sync and protect are left out")
    jobs = {flow.job for flow in topology.flows.values()} | set(topology.jobs)
    declared = {name: topology.jobs.get(name, Job(name)) for name in sorted(jobs)}
    if any(one.launcher != "local" for one in declared.values()):
        notes.append("jobs run on this machine, whatever their launcher is")
    small = replace(
        topology,
        clusters={name: replace(one, id=None, client={}) for name, one in topology.clusters.items()},
        topics=tuple(
            replace(
                one,
                replication=None,
                config={key: value for key, value in one.config.items() if key not in _LEFT_OUT},
            )
            for one in topology.topics
        ),
        acls=(),
        flows={
            name: replace(flow, replication=None, protect=Protect.OFF, acls_sync=False)
            for name, flow in topology.flows.items()
        },
        jobs={
            name: replace(
                one,
                launcher="local",
                master="",
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
    )
    return small, tuple(notes)


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
            topology.flows[one.flow].transform is not None,
        )
        for one in edges
        if one.source not in mirrors
    ]


class Replica:
    """Lab clusters that hold the copy of a topology, in a folder of their own."""

    def __init__(self, topology: Topology, folder: Path) -> None:
        self.topology, self.notes = scaled_down(topology)
        self.routes = routes_of(self.topology)
        self.file = folder / "topology.yaml"
        self._folder = folder
        self._lab = folder / "lab"
        self._clients: dict[str, dict[str, Any]] = {}

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
        finally:
            self._remove()

    def client(self, cluster: str) -> dict[str, Any]:
        """Returns the settings of a client of a cluster."""
        return dict(self._clients[cluster])

    def lose(self, cluster: str) -> None:
        """Kills every broker of a cluster at once."""
        act_on_lab(self._lab, LabAction.KILL, cluster)

    def bring_back(self, cluster: str) -> None:
        """Starts a cluster on its data, and returns when it answers."""
        start_brokers(self._lab, cluster)

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Runs a command of repl as an operator would, on the copy of the topology."""
        return subprocess.run(
            [sys.executable, "-m", "planner", *arguments],
            env={**os.environ, HOME: str(self._folder / "home"), "NO_COLOR": "1"},
            cwd=self._folder,
            capture_output=True,
            text=True,
            check=False,
        )

    def _start(self) -> None:
        names = ",".join(self.topology.clusters)
        lab = start_lab(self._lab, LabChoices(clusters=names, brokers=1, ports="auto"))
        clusters = {
            name: replace(one, bootstrap=lab.clusters[name].bootstrap)
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
            admin = AdminClient(self.client(cluster))
            made = admin.create_topics([NewTopic(one, PARTITIONS) for one in topics])
            for one in made.values():
                one.result(_MADE_WITHIN_S)

    def _remove(self) -> None:
        """Ends the jobs, stops the clusters and removes the folder."""
        if self.file.exists() and self._lab.exists():
            start_lab(self._lab)  # the jobs end through their destinations
            done = self.run("destroy", str(self.file), "--auto-approve")
            if done.returncode:
                raise Failure(
                    error(
                        f"the drill's jobs could not be ended: {done.stderr.strip() or done.stdout.strip()}",
                        f"repl destroy {self.file}, then remove {self._folder}",
                    )
                )
        if self._lab.exists():
            stop_lab(self._lab, purge=True)
        shutil.rmtree(self._folder, ignore_errors=True)


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

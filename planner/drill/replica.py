"""The copy of a topology on lab clusters: the same flows, topics and groups, with other addresses."""

import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka.admin import NewTopic
from msgspec import structs

from planner.config import load
from planner.drill.lab_copy import (
    client_of,
    cluster_copies,
    login_variables,
    scaled_down,
)
from planner.drill.link import DrillLink
from planner.drill.load import load_of
from planner.drill.routes import not_failed_back, routes_of
from planner.drill.scenario_record import Progress
from planner.kafka import ClusterEndpoint
from planner.kafka.librdkafka import admin
from planner.model.diagnostic import Failure, error
from planner.model.topology import Topology
from planner.render.topology import topology_yaml
from planner.workflows.lab import (
    ADMIN,
    LINK,
    LabKafkaCluster,
    Listener,
    open_lab,
    stop_lab,
)
from planner.workflows.rules import POLICY
from planner.workflows.topology import HOME, kill_all_below, launcher_home, processes_below
from runtime.contract.client.secrets import JOB_VARIABLES
from runtime.machine import hold

PARTITIONS = 3
_MADE_WITHIN_S = 60.0
_COMMAND_S = 3_600.0  # the longest that a command of a scenario may take


@contextmanager
def only_drill(path: Path) -> Iterator[Path]:
    """Yields the folder of a topology's copy, and refuses a second drill. The lock ends with the process."""
    home = launcher_home(path)
    home.mkdir(parents=True, exist_ok=True)
    lock = hold(home / "drill.lock")
    if lock is None:
        raise Failure(error("another drill of this topology runs on this machine", "wait until it has ended"))
    with os.fdopen(lock):
        yield home / "drill"


class Replica:
    """Lab clusters that hold the copy of a topology, in a folder of their own.

    `brokers` are how many a scenario needs of clusters, `linked` the clusters that need a link of their own.
    """

    def __init__(
        self,
        topology: Topology,
        folder: Path,
        progress: Progress,
        brokers: Mapping[str, int] | None = None,
        linked: Collection[str] = (),
    ) -> None:
        self.load = load_of(topology, routes_of(topology))
        self._original = topology
        self._folder = folder.resolve()  # as processes below have it in their environment
        self.topology, notes = scaled_down(topology, self.load.by_registry, self._folder / "files")
        self.copies = cluster_copies(topology)
        self.routes = routes_of(self.topology)
        left_out = (
            f"{flow}: its failback is left out, because {other} copies a topic of both back"
            for flow, other in not_failed_back(self.routes).items()
        )
        self.notes = (*notes, *self.load.notes, *left_out)
        self.file = self._folder / "topology.yaml"
        self.links: dict[str, DrillLink] = {}  # through which jobs and commands reach a cluster
        # Hidden, so that they are no part of the topology in this folder.
        self._lab = self._folder / ".lab"
        self._home = self._folder / ".home"
        self._progress = progress
        self._brokers = brokers or {}
        self._linked = linked
        self._clusters: Mapping[str, LabKafkaCluster] = {}
        self._logins: dict[str, str] = {}

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

    def endpoint(self, cluster: str, user: str = ADMIN) -> ClusterEndpoint:
        """Returns how a cluster is reached, as a user of the lab."""
        settings = self._clusters[cluster].client_of(user)
        return ClusterEndpoint(cluster, settings.pop("bootstrap.servers"), settings)

    def declared(self) -> Topology:
        """Returns the copy as it is declared now: commands change the states of flows."""
        return load(self.file)

    def read(self) -> str:
        """Returns the text of the topology's file."""
        return self.file.read_text(encoding="utf-8")

    def write(self, text: str) -> None:
        """Writes the topology's file. Nothing is applied."""
        self.file.write_text(text, encoding="utf-8")
        self.topology = load(self.file)
        self.routes = routes_of(self.topology)

    def lose(self, cluster: str, brokers: Sequence[int] = ()) -> None:
        """Kills every broker of a cluster at once, or these."""
        with open_lab(self._lab) as lab:
            for address in [f"{cluster}:{number}" for number in brokers] or [cluster]:
                lab.kill(address)

    def bring_back(self, cluster: str) -> None:
        """Starts the brokers of a cluster on their data, restores its link, and returns when it answers."""
        if cluster in self.links:
            self.links[cluster].restore()
        with open_lab(self._lab) as lab:
            lab.start(cluster)

    def lose_machine(self) -> None:
        """Kills every job with its supervisor and removes their folder. Commands run elsewhere now."""
        kill_all_below(self._home)
        shutil.rmtree(self._home, ignore_errors=True)
        self._home = self._home.with_name(f"{self._home.name}-elsewhere")

    def processes(self) -> int:
        """Returns how many processes of jobs are left."""
        return processes_below(self._home)

    def change(self, kind: str, name: str, changes: Mapping[str, Any], cluster: str = "") -> None:
        """Changes the declaration of a flow or of a topic, as an edit of the YAML does. Maps are merged."""
        tree = yaml.safe_load(self.read())
        entries = tree.setdefault(kind, [])
        declared = [
            entry
            for entry in entries
            if entry["name"] == name and (not cluster or cluster in _listed(entry["cluster"]))
        ]
        if not declared:
            declared = [{"name": name} | ({"cluster": cluster} if cluster else {})]
            entries += declared
        for entry in declared:
            _merge(entry, changes)
        self.write(yaml.safe_dump(tree, sort_keys=False))

    def take_out(self, flows: Collection[str]) -> None:
        """Takes flows out of the topology's file; `repl apply` then ends them. Their topics stay."""
        tree = yaml.safe_load(self.read())
        tree["flows"] = [flow for flow in tree["flows"] if flow["name"] not in flows]
        self.file.write_text(yaml.safe_dump(tree, sort_keys=False), encoding="utf-8")
        kept = {name: flow for name, flow in self.topology.flows.items() if name not in flows}
        self.topology = replace(self.topology, flows=kept)
        self.routes = [route for route in self.routes if route.flow not in flows]

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Runs a command of repl as an operator would, on the copy of the topology.

        It gets no input, so a command that asks a question fails. Raises Failure if it runs longer than
        `_COMMAND_S`.
        """
        try:
            return subprocess.run(
                [sys.executable, "-m", "planner", *arguments],
                env={**os.environ, HOME: str(self._home), POLICY: "", "NO_COLOR": "1"},
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=_COMMAND_S,
            )
        except subprocess.TimeoutExpired:
            command = f"repl {' '.join(arguments)}"
            raise Failure(error(f"{command} has not ended within {_COMMAND_S / 60:.0f} min")) from None

    def _start(self) -> None:
        specs = []
        for name, copy in self.copies.items():
            brokers = max(copy.spec.brokers, self._brokers.get(name, 1))
            spec = replace(copy.spec, brokers=brokers)
            if name in self._linked:
                self.links[name] = DrillLink(brokers)
                spec = replace(spec, listeners=(Listener(LINK, self.links[name].addresses),))
            specs.append(spec)
        with open_lab(self._lab) as lab:
            lab.up(specs)
            self._clusters = lab.clusters
        for name, link in self.links.items():
            link.start(self._clusters[name].listener(LINK))
        clusters = {
            name: structs.replace(
                cluster,
                bootstrap=",".join(self.links[name].addresses.values())
                if name in self.links
                else self._clusters[name].bootstrap,
                client=client_of(self._original.clusters[name], self._clusters[name].settings()),
            )
            for name, cluster in self.topology.clusters.items()
        }
        self._log_in()
        self.topology = replace(self.topology, clusters=clusters)
        self.file.write_text(topology_yaml(self.topology), encoding="utf-8")
        for endpoint in self.topology.endpoints.values():
            Path(endpoint.folder).mkdir(parents=True)
        declared = {(topic.cluster, topic.name) for topic in self.topology.topics}
        undeclared = {(route.source, route.topic) for route in self.routes} - declared
        for cluster in sorted({cluster for cluster, _ in undeclared}):
            client = admin(self.endpoint(cluster))
            topics = [NewTopic(topic, PARTITIONS) for at, topic in sorted(undeclared) if at == cluster]
            for answer in client.create_topics(topics).values():
                answer.result(_MADE_WITHIN_S)

    def _log_in(self) -> None:
        """Puts the logins into the environment: that of commands, a super user, and that of jobs."""
        for name, copy in self.copies.items():
            cluster = self._clusters[name]
            for prefix, user in (("", ADMIN), (JOB_VARIABLES, copy.job)) if copy.job is not None else ():
                settings = cluster.client_of(user)
                for key, variable in login_variables(name, cluster.settings(user)).items():
                    value = str(settings[key])
                    located = key.endswith(".location")
                    self._logins[prefix + variable] = Path(value).read_text("ascii") if located else value
        os.environ.update(self._logins)

    def _remove(self) -> None:
        """Kills the jobs and what commands still run, stops the clusters and removes the folder."""
        for variable in self._logins:
            os.environ.pop(variable, None)
        for link in self.links.values():
            link.close()
        for home in {self._home, *self._folder.glob(".home*")}:
            kill_all_below(home)
        if self._lab.exists():
            stop_lab(self._lab, purge=True)
        shutil.rmtree(self._folder, ignore_errors=True)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _merge(tree: dict[str, Any], changes: Mapping[str, Any]) -> None:
    for key, value in changes.items():
        if isinstance(value, Mapping) and isinstance(tree.get(key), dict):
            _merge(tree[key], value)
        else:
            tree[key] = value

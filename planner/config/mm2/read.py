"""Converts a whole MirrorMaker 2 file to a topology and notes."""

import re
from collections.abc import Iterable, Mapping
from itertools import product

from planner.config.connect.clients import CLIENT_KEYS, client_of
from planner.config.connect.notes import ConnectWorkers, ConvertedTopology, PropertyKeys
from planner.config.connect.properties import properties_of
from planner.config.mm2.flows import flow_of, workers_of
from planner.config.mm2.reasons import reason_for
from planner.model.diagnostic import Failure, SourceLocation, error
from planner.model.topology import Cluster, Flow, Internal, Job, Topology

_INTERNAL = (
    "offset-syncs.topic.replication.factor",
    "heartbeats.topic.replication.factor",
    "checkpoints.topic.replication.factor",
    "offset.storage.replication.factor",
    "config.storage.replication.factor",
    "status.storage.replication.factor",
)
_CLIENT_ROLES = ("", "admin.", "consumer.", "producer.")


def convert(text: str, file: str, name: str) -> ConvertedTopology:
    """Converts a file. Raises a Failure if it is no MirrorMaker 2 configuration, or no flow is enabled."""
    keys = PropertyKeys({one.key: one for one in properties_of(text)}, file)
    aliases = keys.listed("clusters") or ()
    if not aliases:
        raise Failure(
            error(
                f"{file} is no MirrorMaker 2 configuration: it names no clusters",
                "give the file that connect-mirror-maker is started with (clusters = A, B)",
            )
        )
    names = {alias: re.sub(r"[^A-Za-z0-9_-]", "_", alias) for alias in aliases}
    clusters = {names[alias]: _cluster(alias, names[alias], keys, file) for alias in aliases}
    flows: dict[str, Flow] = {}
    workers: dict[str, ConnectWorkers] = {}
    for source, target in _pairs(aliases, keys):
        flow = flow_of(source, target, names, keys)
        flows[flow.name] = flow
        workers[flow.name] = workers_of(source, target, keys)
    if not flows:
        raise Failure(
            error(
                f"no flow is enabled in {file}",
                f"set {aliases[0]}->{aliases[-1]}.enabled = true for each that runs",
                source=SourceLocation(file, keys.by_name["clusters"].line, 1),
            )
        )
    topology = Topology(
        name=name,
        clusters=clusters,
        flows=flows,
        jobs=_jobs(aliases, names, flows.values(), keys),
        internal=Internal(_internal_replication(aliases, keys)),
    )
    _explain_rest(aliases, keys)
    notes = tuple(sorted(keys.notes, key=lambda one: (one.line, one.key)))
    return ConvertedTopology(topology, notes, workers)


def _cluster(alias: str, name: str, keys: PropertyKeys, file: str) -> Cluster:
    bootstrap = keys.text(f"{alias}.bootstrap.servers")
    if not bootstrap:
        raise Failure(
            error(
                f"{file} does not say where cluster {alias} is",
                f"set {alias}.bootstrap.servers",
                source=SourceLocation(file, keys.by_name["clusters"].line, 1),
            )
        )
    settings: dict[str, str] = {}
    for key in CLIENT_KEYS:
        candidates = [f"{alias}.{role}{key}" for role in _CLIENT_ROLES]
        found = keys.name_of(*candidates, *(f"{role}{key}" for role in _CLIENT_ROLES))
        if found is not None:
            settings[key] = found
            keys.used.update(one for one in candidates if one in keys.by_name)
    addresses = ",".join(part.strip() for part in bootstrap.split(",") if part.strip())
    return Cluster(name, addresses, client=client_of(name, keys, settings))


def _pairs(aliases: tuple[str, ...], keys: PropertyKeys) -> Iterable[tuple[str, str]]:
    """Yields source and target of each flow that is enabled."""
    for source, target in product(aliases, aliases):
        if keys.flag(False, f"{source}->{target}.enabled") and source != target:
            yield source, target


def _jobs(
    aliases: tuple[str, ...], names: Mapping[str, str], flows: Iterable[Flow], keys: PropertyKeys
) -> dict[str, Job]:
    """Returns the jobs: the largest `tasks.max` at a destination is the number of slots of its job."""
    jobs = {}
    for target in aliases:
        wanted = []
        for flow in flows:
            if flow.destination_cluster != names[target]:
                continue
            source = next(alias for alias in aliases if names[alias] == flow.source_cluster)
            found = keys.text(f"{source}->{target}.tasks.max", f"{target}.tasks.max", "tasks.max")
            if found is not None and found.isdecimal():
                wanted.append(int(found))
        if any(flow.destination_cluster == names[target] for flow in flows):
            jobs[names[target]] = Job(names[target], slots=max(wanted) if wanted else "auto")
    return jobs


def _internal_replication(aliases: tuple[str, ...], keys: PropertyKeys) -> int | None:
    """Returns the largest replication of MirrorMaker's own topics. -1 stands for the broker's default."""
    numbers = []
    for key in _INTERNAL:
        for name in (key, *(f"{alias}.{key}" for alias in aliases)):
            value = keys.text(name)
            if value is not None and value.isdecimal():
                numbers.append(int(value))
    return max(numbers, default=None)


def _explain_rest(aliases: tuple[str, ...], keys: PropertyKeys) -> None:
    pairs = [f"{source}->{target}" for source, target in product(aliases, aliases)]
    for one in keys.rest():
        prefix = next((name for name in (*pairs, *aliases) if one.key.startswith(f"{name}.")), None)
        if "->" in one.key and prefix not in pairs:
            keys.note(one.key, "a cluster of it is not among clusters, so MirrorMaker does not run it either")
        elif prefix in pairs and not keys.flag(False, f"{prefix}.enabled"):
            keys.note(one.key, "its flow is not enabled", loss=False)
        else:
            reason, loss = reason_for(one.key.removeprefix(f"{prefix}.") if prefix else one.key)
            keys.note(one.key, reason, loss=loss)

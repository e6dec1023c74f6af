"""A flow's or a job's spec as fields with the topology's names, so that two can be compared and shown."""

from collections.abc import Iterable, Mapping
from pathlib import PurePath

import msgspec

from planner.diff.values import DURATIONS
from planner.model.change import SENSITIVE, FieldChange, Value
from planner.model.topology import looks_secret
from runtime.contract.spec import jobspec
from runtime.contract.spec.jobspec import (
    FlowSpec,
    JobSpec,
    LaunchSpec,
    MatchRule,
    RenameRule,
    TableRule,
    TemplateRule,
)

OFF = "off"
NOT_SET = "not set"


def flow_fields(flow: FlowSpec) -> dict[str, Value]:
    commits = flow.origin_commits
    return {
        "from": flow.source,
        "to": flow.destination,
        "topics.include": tuple(flow.topics.include),
        "topics.exclude": tuple(flow.topics.exclude),
        "topics.default_exclude": flow.topics.default_exclude,
        "rename": _rename(flow.rename),
        "provenance": flow.provenance,
        "native_only": flow.native_only,
        "shared": flow.shared,
        "start": _start(flow.start),
        "restart_from": _start(flow.restart_from) if flow.restart_from is not None else NOT_SET,
        "state": flow.state,
        "reverse_of": flow.reverse_of or NOT_SET,
        "promoted": tuple(flow.promoted),
        "configs.sync": flow.configs.sync,
        "configs.exclude": tuple(flow.configs.exclude),
        "groups.include": tuple(flow.groups.selection.include),
        "groups.exclude": tuple(flow.groups.selection.exclude),
        "groups.default_exclude": flow.groups.selection.default_exclude,
        "groups.sync": flow.groups.sync,
        "groups.every": _every(flow.groups.every_ms),
        "groups.mode": flow.groups.mode,
        "acls.sync": flow.acls_sync,
        "rpo": NOT_SET if flow.rpo_ms is None else _every(flow.rpo_ms),
        "rate_limit": NOT_SET if flow.rate_limit is None else _rate(flow.rate_limit),
        "follow": _every(flow.follow_every_ms),
        "heartbeats": _every(flow.heartbeats_every_ms),
        "checkpoints": _every(flow.checkpoints_every_ms),
        "origin_commits": OFF if commits is None else f"{commits.group} every {_every(commits.every_ms)}",
        "on_source_delete": flow.on_source_delete,
        "on_data_loss": flow.on_data_loss,
    }


# What a new flow shows whatever it is; the rest only where it is not the default.
_ALWAYS = ("from", "to", "topics.include", "rename", "provenance", "start", "state")
_USUAL = ("origin_commits",)


def new_flow_fields(flow: FlowSpec) -> tuple[FieldChange, ...]:
    plain = flow_fields(
        FlowSpec(name=flow.name, source="", destination="", topics=jobspec.SelectionSpec(include=[]))
    )
    fields = flow_fields(flow)
    shown = [key for key in fields if key in _ALWAYS or (fields[key] != plain[key] and key not in _USUAL)]
    found = [FieldChange((key,), None, fields[key]) for key in shown if not key.startswith("groups.")]
    return (*found, FieldChange(("groups",), None, _groups(flow.groups)))


def _groups(groups: jobspec.GroupsSpec) -> str:
    """`.* but x, synced every 5s, exact`"""
    if not groups.sync:
        return "not synced"
    names = ", ".join(groups.selection.include)
    left_out = f" without {', '.join(groups.selection.exclude)}" if groups.selection.exclude else ""
    return f"{names}{left_out}, synced every {_every(groups.every_ms)}, {groups.mode}"


def launch_fields(spec: JobSpec) -> dict[str, Value]:
    """What can't change while the job runs."""
    internal, launcher = spec.internal, launcher_fields(spec.launch)
    return {
        **{key: launcher[key] for key in ("launcher", "master", "memory")},
        "slots": spec.slots or "auto",
        **launcher,
        "copy": "as released"
        if spec.copy == jobspec.CopySettings()
        else msgspec.json.encode(spec.copy).decode(),
        "internal.replication": internal.replication or NOT_SET,
        "internal.retention": _every(internal.retention_ms) if internal.retention_ms else NOT_SET,
    }


def reached_fields(spec: JobSpec, names: Iterable[str] | None = None) -> dict[str, Value]:
    """How clusters are reached, all or those of these names.

    A running job trusts no record about that, so none of it can change while the job runs.
    """
    wanted = spec.clusters if names is None else spec.clusters.keys() & set(names)
    return _reached(spec, sorted(wanted))


def launcher_fields(launch: LaunchSpec) -> dict[str, Value]:
    """Where and how the application runs."""
    return {
        "launcher": launch.launcher,
        "master": launch.master,
        "memory": launch.memory,
        "conf": _pairs(launch.conf),
        "options": _pairs(launch.options),
    }


def with_files_of(running: JobSpec | None, wanted: JobSpec) -> JobSpec:
    """Returns the wanted spec with the paths by which the running job opens the files that it names.

    The same reference in another checkout is the same reference: the job goes on with the path it was started
    with, which exists on its machine.
    """
    if running is None:
        return wanted
    clusters = {
        name: msgspec.structs.replace(one, client=_files_of(running.clusters[name].client, one.client))
        if name in running.clusters
        else one
        for name, one in wanted.clusters.items()
    }
    return msgspec.structs.replace(wanted, clusters=clusters)


def _files_of(
    running: Mapping[str, jobspec.Setting], wanted: Mapping[str, jobspec.Setting]
) -> dict[str, jobspec.Setting]:
    return {
        key: running[key] if key in running and _same_file(running[key], value) else value
        for key, value in wanted.items()
    }


def _same_file(one: jobspec.Setting, other: jobspec.Setting) -> bool:
    if not isinstance(one, dict) or not isinstance(other, dict) or not one.keys() == other.keys() == {"file"}:
        return False
    paths = one["file"], other["file"]
    # A job that an older release started has the path without its mark.
    return PurePath(paths[0]) == PurePath(paths[1]) or _is_relative_and_same(*paths)


def _is_relative_and_same(one: str, other: str) -> bool:
    both_relative = jobspec.FROM_HERE in one and jobspec.FROM_HERE in other
    return both_relative and jobspec.written_path(one) == jobspec.written_path(other)


def metrics_fields(spec: JobSpec) -> dict[str, Value]:
    return {
        "metrics": OFF if spec.metrics_port is None else f"{spec.metrics_host}:{spec.metrics_port}",
        "metrics.partitions": spec.metrics_partitions,
    }


def running_fields(spec: JobSpec) -> dict[str, Value]:
    """What a job takes over while it runs."""
    return {
        **metrics_fields(spec),
        "flows": tuple(f"{flow.name} ({flow.state})" for flow in spec.flows),
        **_timestamps(spec.internal.timestamps),
        "declared": tuple(f"{topic}: {', '.join(keys)}" for topic, keys in sorted(spec.declared.items())),
    }


def job_fields(spec: JobSpec) -> dict[str, Value]:
    return {**launch_fields(spec), **reached_fields(spec), **running_fields(spec)}


def _reached(spec: JobSpec, names: Iterable[str]) -> dict[str, Value]:
    return {
        f"clusters.{name}.{key}": value
        for name in names
        for key, value in (
            ("bootstrap", spec.clusters[name].bootstrap),
            ("id", spec.clusters[name].id or NOT_SET),
            *(
                (f"client.{key}", _setting(key, value))
                for key, value in sorted(spec.clusters[name].client.items())
            ),
        )
    }


def _timestamps(timestamps: jobspec.TimestampsSpec) -> dict[str, Value]:
    """What is not as usual."""
    usual = msgspec.structs.asdict(jobspec.TimestampsSpec())
    return {
        f"internal.timestamps.{key}": value
        for key, value in msgspec.structs.asdict(timestamps).items()
        if value != usual[key]
    }


def moved(before: Mapping[str, Value], after: Mapping[str, Value]) -> tuple[FieldChange, ...]:
    keys: Iterable[str] = dict.fromkeys((*after, *before))
    return tuple(
        FieldChange((key,), before.get(key, NOT_SET), after.get(key, NOT_SET))
        for key in keys
        if before.get(key, NOT_SET) != after.get(key, NOT_SET)
    )


def _setting(key: str, value: jobspec.Setting) -> str:
    if isinstance(value, dict):
        return "".join(f"{{{kind}: {name}}}" for kind, name in value.items())
    return SENSITIVE if looks_secret(key) else value


def _pairs(values: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(
        f"{key}={SENSITIVE if looks_secret(key) else value}" for key, value in sorted(values.items())
    )


def _every(ms: int | None) -> str:
    if ms is None:
        return OFF
    return next((f"{ms // size}{unit}" for unit, size in DURATIONS if ms and ms % size == 0), f"{ms}ms")


def _rate(rate: int) -> str:
    sizes = (("GB", 10**9), ("MB", 10**6), ("KB", 10**3))
    return next((f"{rate // size}{unit}/s" for unit, size in sizes if rate % size == 0), f"{rate} B/s")


def _rename(rule: RenameRule) -> str:
    match rule:
        case TemplateRule(text=text):
            return text
        case MatchRule(match=pattern, to=to):
            return f"{pattern} -> {to}"
        case TableRule(names=names):
            return ", ".join(f"{name} -> {to}" for name, to in sorted(names.items()))


def _start(start: jobspec.Start) -> str:
    match start:
        case jobspec.Earliest():
            return "earliest"
        case jobspec.Latest():
            return "latest"
        case jobspec.AtTimestamp(timestamp_ms=at_ms):
            return f"timestamp {at_ms}"
        case jobspec.AtOffsets(offsets=offsets):
            return ", ".join(
                f"{topic}:{partition}:{offset}"
                for topic, found in sorted(offsets.items())
                for partition, offset in sorted(found.items(), key=lambda one: int(one[0]))
            )

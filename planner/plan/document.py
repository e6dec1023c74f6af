"""The plan as a tree of plain values in Terraform's vocabulary: stable and versioned."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from planner.diff.fields import displayed, displayed_values
from planner.diff.values import as_brokers_read
from planner.model.address import Kind
from planner.model.change import SENSITIVE, Action, Change, FieldChange
from planner.model.diagnostic import Diagnostic
from planner.model.observed import CONFIG
from planner.model.plain import KIND, plain
from planner.model.plan import Mode, Plan, digest
from planner.model.step import Step
from planner.plan.steps.jobs import RunJob, StopJob
from runtime.contract.spec import jobspec

FORMAT_VERSION = "1.0"

ACTIONS: Mapping[Action, tuple[str, ...]] = {
    Action.NO_OP: ("no-op",),
    Action.CREATE: ("create",),
    Action.UPDATE: ("update",),
    Action.DELETE: ("delete",),
    Action.REPLACE: ("delete", "create"),
    Action.FORGET: ("forget",),
    Action.UNKNOWN: ("unknown",),
}


_COUNTED: Mapping[Action, tuple[str, ...]] = {
    Action.NO_OP: (),
    Action.CREATE: ("add",),
    Action.UPDATE: ("change",),
    Action.DELETE: ("destroy",),
    Action.REPLACE: ("add", "destroy"),
    Action.FORGET: ("forget",),
    Action.UNKNOWN: ("unknown",),
}


@dataclass(frozen=True, slots=True)
class ChangeSummary:
    """How many objects are added, changed, destroyed, adopted, forgotten and unknown."""

    add: int = 0
    change: int = 0
    destroy: int = 0
    adopt: int = 0
    forget: int = 0
    unknown: int = 0

    @staticmethod
    def of(changes: Iterable[Change]) -> "ChangeSummary":
        """Counts the changes. A replacement counts as added and destroyed, a changed adoption as changed."""
        counted: Counter[str] = Counter()
        for change in changes:
            counted.update(_COUNTED[change.action])
            counted["adopt"] += change.adopted and change.action is Action.NO_OP
        return ChangeSummary(**counted)


def json_tree(plan: Plan) -> dict[str, Any]:
    """Returns the plan as a tree: `resource_changes`, or `resource_drift` where nothing will change."""
    changes = [_change(change) for change in plan.changes]
    drift = plan.inputs.mode is Mode.DRIFT
    by_address = {change.address: change for change in plan.changes}
    ends = (end for flow in plan.job_flows for end in flow.ends)
    labels = {
        name: dict(cluster.labels) for name, cluster in plan.topology.clusters.items() if cluster.labels
    }
    clusters = {*plan.connections, *plan.clusters, *labels, *ends}  # whether or not they answered
    return {
        "format_version": FORMAT_VERSION,
        "topology": plan.topology.name,
        "mode": plan.inputs.mode.value,
        "created_at": plan.inputs.created_at,
        "topology_digest": plan.topology.digest,
        "digest": None if drift else digest(plan),
        "complete": plan.complete,
        "errored": plan.errored,
        "applyable": plan.applyable,
        "changed": plan.changed,
        "clusters": dict(plan.clusters),
        "cluster_labels": {name: labels.get(name, {}) for name in sorted(clusters)},
        "targets": sorted(plan.inputs.targets),
        "resource_changes": [] if drift else changes,
        "resource_drift": changes if drift else [],
        "steps": [_step(step, by_address.get(step.address)) for step in plan.steps],
        "unknown": dict(plan.unknown),
        "diagnostics": [diagnostic_tree(diagnostic) for diagnostic in plan.diagnostics],
        "summary": asdict(ChangeSummary.of(plan.changes)),
        "waves": [{**plain(wave), "state": wave.state} for wave in plan.desired.waves],
    }


def _step(step: Step, change: Change | None) -> dict[str, Any]:
    """Returns a step with the reason of its change. Sensitive values are masked."""
    parts = plain(step)
    first = {name: parts.pop(name) for name in ("id", "address", "cluster", "needs") if name in parts}
    if isinstance(step, RunJob):
        parts["spec"] = jobspec.encode(step.spec).decode()
    if isinstance(step, StopJob) and (launch := parts.pop("launch", None)) is not None:
        parts["launch"] = msgspec.json.encode(launch).decode()
    tree: dict[str, Any] = {"step": parts.pop(KIND), **first, **parts}
    if change is None:
        return tree
    hidden = {field.key.removeprefix(CONFIG) for field in change.fields if field.sensitive}
    for values, prefix in ((tree.get("set", {}), ""), (tree.get("entry", {}).get("spec", {}), CONFIG)):
        values.update({prefix + key: SENSITIVE for key in hidden if prefix + key in values})
    return {**tree, "reason": change.reason}


def _change(change: Change) -> dict[str, Any]:
    address = change.address
    values = _values(address.kind, change.after)
    return {
        "address": str(address),
        "type": address.kind.value,
        "cluster": address.cluster,
        "name": address.name,
        "change": {
            "actions": list(ACTIONS[change.action]),
            "before": _state(change.before),
            "after": _state(change.after),
            **({} if values is None else {"values": values}),
            "fields": [_field(field, change.action) for field in change.fields],
        },
        "reason": change.reason,
        "adopted": change.adopted,
        "unchanged": change.unchanged,
        "notes": list(change.notes),
    }


def _values(kind: Kind, after: Mapping[str, object] | None) -> Any:
    """Returns what a topic, a flow or a job will be as data, for rules: `after` has texts in its place.

    A broker reads several texts as one value: "-1", "-01" and " -1" are all no limit.
    """
    if after is None or kind not in (Kind.TOPIC, Kind.FLOW, Kind.JOB):
        return None
    if kind is Kind.TOPIC and isinstance(config := after.get("config"), Mapping):
        after = {**after, "config": as_brokers_read(config)}
    return plain(after)


def _state(values: Mapping[str, object] | None) -> Any:
    return None if values is None else plain(displayed_values(values))


def _field(field: FieldChange, action: Action) -> dict[str, Any]:
    """The field with its values as people read them; nothing stands for the old value of a new object."""
    old = None if field.old is None and action is Action.CREATE else displayed(field.path, field.old)
    return {**asdict(field), "old": plain(old), "new": plain(displayed(field.path, field.new))}


def diagnostic_tree(diagnostic: Diagnostic) -> dict[str, Any]:
    """Returns a diagnostic as a tree."""
    return {
        "severity": diagnostic.severity.value,
        "code": diagnostic.code,
        "summary": diagnostic.summary,
        "way_out": diagnostic.hint,
        "address": diagnostic.address,
        "source": None if diagnostic.source is None else plain(diagnostic.source),
    }

"""Compares the subjects of schema registries with the desired ones.

A version is never changed or removed: schemas that the source no longer has may be needed by records. No
topology owns a subject, so a flow that leaves the topology leaves its subjects as they are.
"""

from planner.diff.compared import ComparedKind, not_planned
from planner.model.change import Action, Change, FieldChange
from planner.model.desired import Desired, DesiredSubject
from planner.model.observed import SCHEMAS, Observed, ObservedCluster, ObservedSubject

VERSIONS, COMPATIBILITY, MODE = "versions", "compatibility", "mode"
SETTINGS = (COMPATIBILITY, MODE)


class ComparedSubjects(ComparedKind):
    """Subjects of schema registries. No subject is owned, so none can drift."""

    def changes(self, desired: Desired, observed: Observed) -> list[Change]:
        changes: list[Change] = []
        for subject in desired.subjects:
            cluster = observed.reachable(subject.cluster)
            change = not_planned(subject.address, observed, desired.topology, SCHEMAS)
            if change is None and cluster is not None:
                change = _change(subject, cluster)
            if change is not None:
                changes.append(change)
        return changes


def _change(subject: DesiredSubject, cluster: ObservedCluster) -> Change:
    live = cluster.subjects.get(subject.name)
    missing = subject.missing(live)
    there = live or ObservedSubject()
    fields: list[FieldChange] = []
    if missing:
        named = ", ".join(f"{version.number} (id {version.id})" for version in missing[:_SHOWN])
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        at = f"of {subject.origin.source_cluster}: {named}{more}"
        old = len(there.versions)
        fields.append(FieldChange((VERSIONS,), old or None, old + len(missing), note=at))
    for setting in SETTINGS:
        old_value, new_value = getattr(there, setting), getattr(subject, setting)
        if new_value and old_value != new_value:
            fields.append(FieldChange((setting,), old_value or None, new_value))
    before = None if live is None else _values(len(live.versions), live.compatibility, live.mode)
    after = _values(
        len(there.versions) + len(missing),
        subject.compatibility or there.compatibility,
        subject.mode or there.mode,
    )
    if not fields:
        return Change(subject.address, Action.NO_OP, subject.reason, before=before, after=after)
    action = Action.CREATE if live is None else Action.UPDATE
    return Change(subject.address, action, subject.reason, tuple(fields), before=before, after=after)


_SHOWN = 3


def _values(versions: int, compatibility: str, mode: str) -> dict[str, object]:
    values = {VERSIONS: versions, COMPATIBILITY: compatibility, MODE: mode}
    return {key: value for key, value in values.items() if value}

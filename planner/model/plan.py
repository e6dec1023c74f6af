"""The plan: the whole instruction for apply, with its changes and with what it was made from.

A change has one address, what happens to it, why, and which of its fields change. All are plain values. Only
the inputs of a plan are saved and have a digest: everything else follows from them.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from planner.model.change import SENSITIVE, Action, Change
from planner.model.desired import Desired
from planner.model.diagnostic import Diagnostic, ExitCode, Severity
from planner.model.observed import Observed
from planner.model.plain import masked, plain
from planner.model.restore import RestoredBackup
from planner.model.step import NOTHING_DONE, ApplyRecord, ApplySummary, Step
from planner.model.topology import Cluster, Flow, Topology
from runtime.contract.client.secrets import secret_settings
from runtime.contract.extras import DISTRIBUTION
from runtime.contract.results.status import PartitionWaits

if TYPE_CHECKING:
    from runtime.contract.results.groups import FlowLoss, GroupTopics

MARK = "repl_plan"  # the first key of a plan file; its value is the format's version
WAITS = "partition-waits"  # the code of a diagnostic: a partition of a flow waits for a decision


class Mode(StrEnum):
    """What kind of plan it is."""

    APPLY = "apply"
    DESTROY = "destroy"
    ROLLBACK = "rollback"
    DRIFT = "drift"
    RESTORE = "restore"


@cache
def release() -> str:
    """Returns the version of this distribution."""
    return version(DISTRIBUTION)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanInputs:
    """What a plan is made from. The same inputs have the same plan, wherever and whenever it is made.

    `observed` is what was read of the clusters. Relative paths of the topology start at `folder`. `targets`
    are addresses as they were written. `adopt` names clusters of which the plan only registers what is as
    declared. A rollback has the earlier apply, a restore its backup. `diagnostics` are those that can't be
    made again without the clusters or the topology's files, such as the brokers' objections.
    """

    release: str  # another release may make another plan of the same inputs
    mode: Mode
    topology: Topology
    observed: Observed
    created_at: str = ""  # ISO 8601
    folder: str = ""
    targets: tuple[str, ...] = ()
    adopt: tuple[str, ...] = ()
    applied: ApplyRecord | None = None
    backup: RestoredBackup | None = None
    diagnostics: tuple[Diagnostic, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan has three properties, not one status: `complete` (all could be read), `errored`, `applyable`.

    `desired` is the state that its changes lead to. A restore has none: its backup says what it writes.
    """

    inputs: PlanInputs = field(repr=False)
    changes: tuple[Change, ...] = ()
    steps: tuple[Step, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)
    desired: Desired = field(default=Desired(""), repr=False)

    @property
    def topology(self) -> Topology:
        return self.inputs.topology

    @property
    def job_flows(self) -> list[Flow]:
        """Returns the flows of the plan as jobs run them. A restore runs none."""
        restores = self.inputs.mode is Mode.RESTORE
        return [] if restores else [flow for _, flow in sorted(self.topology.job_flows.items())]

    @property
    def clusters(self) -> Mapping[str, str]:
        """Returns the id of each cluster that was read, by name."""
        return {name: live.id for name, live in sorted(self.inputs.observed.live.items())}

    @property
    def connections(self) -> Mapping[str, Cluster]:
        """Returns how to reach the clusters that were read; secrets are references."""
        declared = self.topology.clusters
        return {name: declared[name] for name in self.clusters if name in declared}

    @property
    def complete(self) -> bool:
        """Returns whether everything could be read."""
        return not self.unknown

    @property
    def errored(self) -> bool:
        """Returns whether the plan has an error."""
        return any(diagnostic.severity is Severity.ERROR for diagnostic in self.diagnostics)

    @property
    def applyable(self) -> bool:
        """Returns whether an apply would execute steps."""
        return bool(self.steps) and not self.errored

    @property
    def waits(self) -> bool:
        """Returns whether a partition of the plan's flows waits for a decision."""
        return any(diagnostic.code == WAITS for diagnostic in self.diagnostics)

    @property
    def changed(self) -> bool:
        """Returns whether an apply would do anything. Starting to manage an object counts."""
        return any(
            change.adopted or change.action not in (Action.NO_OP, Action.UNKNOWN) for change in self.changes
        )


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """How the apply of a plan ended, with the diagnostics that it reported.

    Of a plan without steps, `apply_id` is None: no history records it. `waits` are partitions that wait for a
    decision: no apply lets them continue. `subscriptions` are what the groups of flows that ended subscribe
    to where they go on, and `lost` what had not arrived when they failed over; both are empty where the apply
    is not complete. When it is reported as an event, `diagnostics`, `subscriptions` and `lost` are still
    empty. A cutover returns the subscriptions in `CutoverResult`.
    """

    plan: Plan
    summary: ApplySummary = NOTHING_DONE
    apply_id: str | None = None
    waits: tuple[PartitionWaits, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    subscriptions: "tuple[GroupTopics, ...]" = ()
    lost: "tuple[FlowLoss, ...]" = ()

    @property
    def complete(self) -> bool:
        """Returns whether every step is done, everything could be read, and no partition waits."""
        return self.summary.complete and self.plan.complete and not self.waits

    @property
    def exit_code(self) -> ExitCode:
        if self.complete:
            return ExitCode.DONE
        cut = self.summary.interrupted and not self.summary.complete
        return ExitCode.INTERRUPTED if cut else ExitCode.ERROR


PREFIX = "sha256:"


def digest(plan: Plan) -> str:
    """Returns the name of this plan: `sha256:` and 64 hex digits."""
    return digest_of(canonical(body_of(plan.inputs)))


def body_of(inputs: PlanInputs) -> dict[str, Any]:
    """Returns the inputs as the plain tree of a plan file. Secrets that are written out are masked."""
    body: dict[str, Any] = plain(inputs)
    topology = body["topology"]
    for part in {"clusters", "endpoints", "flows", "file_flows", "registries"} & topology.keys():
        topology[part] = masked(topology[part])
    for job in topology.get("jobs", {}).values():
        conf = job.get("conf", {})
        conf.update(dict.fromkeys(secret_settings(conf), SENSITIVE))
    for cluster in body["observed"]["clusters"].values():
        if "jobs" in cluster:
            cluster["jobs"] = masked(cluster["jobs"])
        if "hidden" in cluster:
            cluster["hidden"].sort()
        # The names that each group has read are sets: they have no order.
        for groups in (cluster.get("group_topics") or {}, *cluster.get("group_kinds", {}).values()):
            for names in groups.values():
                names.sort()
    return body


def digest_of(content: bytes) -> str:
    """Returns the digest of the canonical bytes of a plan's inputs."""
    return PREFIX + hashlib.sha256(content).hexdigest()


def canonical(body: dict[str, Any]) -> bytes:
    """Returns the bytes that the digest and the signature are made over."""
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode("ascii")

"""This package offers the commands of `repl` as a Python API without a terminal. See docs/python.md.

    from planner.workflows import ApplyRequest, PlanRequest, apply, plan

Each workflow takes a frozen request and returns a frozen result; Failure holds the diagnostics of a
refused request. No module here prints, reads a terminal, or imports click and rich. Modules are loaded on
first use.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from planner.model.diagnostic import Failure
    from planner.workflows.applying.apply import ApplyResult, OpenedPlan, apply, destroy, open_plan, save_plan
    from planner.workflows.audit.comparison import ReplayResult, replay_salvage, salvage, verify
    from planner.workflows.audit.history import HistoryResult, history
    from planner.workflows.audit.reading import clients, cluster_content, locate_record, offsets, records
    from planner.workflows.audit.replication_status import status, watch_status
    from planner.workflows.flows.failover import (
        FailbackResult,
        FailoverRehearsal,
        FailoverResult,
        failback,
        failover,
        rehearse_failover,
        switch_back,
    )
    from planner.workflows.flows.restoring import plan_restore, restore
    from planner.workflows.flows.states import PromoteResult, pause, promote, resume
    from planner.workflows.importing import (
        ImportedCopy,
        adopt,
        import_clusters,
        import_mm2,
        import_replicator,
    )
    from planner.workflows.interaction import (
        Approval,
        Interaction,
        ProgressHandler,
        approve_all,
        approve_nothing,
        silent,
    )
    from planner.workflows.lab import LabChoices, lab_status, start_lab, stop_lab
    from planner.workflows.one_off import try_transform
    from planner.workflows.plans import drift, plan, validate
    from planner.workflows.requests import (
        AdoptRequest,
        ApplyRequest,
        ChangeRequest,
        ClusterRequest,
        FailbackRequest,
        FailoverRequest,
        FlowRequest,
        HistoryRequest,
        ImportRequest,
        LocateRecordRequest,
        OffsetsRequest,
        PlanRequest,
        PromoteRequest,
        ReplaySalvageRequest,
        ReplicationStatusRequest,
        RestoreBackupRequest,
        ResumeRequest,
        SalvageFlowRequest,
        SimulationRequest,
        TakeOver,
        TopologyRequest,
        TryFlowRequest,
        VerifyFlowRequest,
    )
    from planner.workflows.simulation import simulate

# The module below planner.workflows that defines each public name.
_MODULES = {
    "applying.apply": ("ApplyResult", "OpenedPlan", "apply", "destroy", "open_plan", "save_plan"),
    "audit.comparison": ("ReplayResult", "replay_salvage", "salvage", "verify"),
    "audit.history": ("HistoryResult", "history"),
    "audit.reading": ("clients", "cluster_content", "locate_record", "offsets", "records"),
    "audit.replication_status": ("status", "watch_status"),
    "flows.failover": (
        "FailbackResult",
        "FailoverRehearsal",
        "FailoverResult",
        "failback",
        "failover",
        "rehearse_failover",
        "switch_back",
    ),
    "flows.states": ("PromoteResult", "pause", "promote", "resume"),
    "importing": ("ImportedCopy", "adopt", "import_clusters", "import_mm2", "import_replicator"),
    "interaction": (
        "Approval",
        "Failure",
        "Interaction",
        "ProgressHandler",
        "approve_all",
        "approve_nothing",
        "silent",
    ),
    "lab": ("lab_status", "start_lab", "stop_lab"),
    "one_off": ("try_transform",),
    "plans": ("drift", "plan", "validate"),
    "flows.restoring": ("plan_restore", "restore"),
    "simulation": ("simulate",),
    "requests": (
        "AdoptRequest",
        "ApplyRequest",
        "ChangeRequest",
        "ClusterRequest",
        "FailbackRequest",
        "FailoverRequest",
        "FlowRequest",
        "HistoryRequest",
        "ImportRequest",
        "LabChoices",
        "LocateRecordRequest",
        "OffsetsRequest",
        "PlanRequest",
        "PromoteRequest",
        "ReplaySalvageRequest",
        "ReplicationStatusRequest",
        "RestoreBackupRequest",
        "ResumeRequest",
        "SalvageFlowRequest",
        "SimulationRequest",
        "TakeOver",
        "TopologyRequest",
        "TryFlowRequest",
        "VerifyFlowRequest",
    ),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "AdoptRequest",
    "ApplyRequest",
    "ApplyResult",
    "Approval",
    "ChangeRequest",
    "ClusterRequest",
    "FailbackRequest",
    "FailbackResult",
    "FailoverRehearsal",
    "FailoverRequest",
    "FailoverResult",
    "Failure",
    "FlowRequest",
    "HistoryRequest",
    "HistoryResult",
    "ImportRequest",
    "ImportedCopy",
    "Interaction",
    "LabChoices",
    "LocateRecordRequest",
    "OffsetsRequest",
    "OpenedPlan",
    "PlanRequest",
    "ProgressHandler",
    "PromoteRequest",
    "PromoteResult",
    "ReplayResult",
    "ReplaySalvageRequest",
    "ReplicationStatusRequest",
    "RestoreBackupRequest",
    "ResumeRequest",
    "SalvageFlowRequest",
    "SimulationRequest",
    "TakeOver",
    "TopologyRequest",
    "TryFlowRequest",
    "VerifyFlowRequest",
    "adopt",
    "apply",
    "approve_all",
    "approve_nothing",
    "clients",
    "cluster_content",
    "destroy",
    "drift",
    "failback",
    "failover",
    "history",
    "import_clusters",
    "import_mm2",
    "import_replicator",
    "lab_status",
    "locate_record",
    "offsets",
    "open_plan",
    "pause",
    "plan",
    "plan_restore",
    "promote",
    "records",
    "rehearse_failover",
    "replay_salvage",
    "restore",
    "resume",
    "salvage",
    "save_plan",
    "silent",
    "simulate",
    "start_lab",
    "status",
    "stop_lab",
    "switch_back",
    "try_transform",
    "validate",
    "verify",
    "watch_status",
]


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]

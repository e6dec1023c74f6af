"""`repl plan --rollback ID`: the steps of one apply × what the clusters hold now → the inverse plan."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from planner.model.address import Kind
from planner.model.desired import Desired
from planner.model.observed import ClusterDetailsRequest, Observed, TopicConfigsRequest
from planner.model.plan import Mode, Plan
from planner.model.step import AlterConfigs, ApplyRecord, Step
from planner.model.topology import Topology
from planner.observe import Observer
from planner.plan import make_plan, with_diagnostics
from planner.plan.fingerprint import fingerprints
from planner.plan.recheck import required_keys, requirements
from planner.plan.rollback import roll_back
from planner.state.registry import read_registry
from planner.workflows.audit.history import find, histories
from planner.workflows.clusters import endpoints_of
from planner.workflows.interaction import ProgressHandler, silent
from planner.workflows.plans import now_text


def rollback_plan(
    topology: Topology, apply_id: str, timeout_ms: int, progress: ProgressHandler = silent
) -> Plan:
    """Returns the plan that takes back an apply. Failure: the id fits no apply, or several."""
    endpoints = endpoints_of(topology.clusters.values())
    applied = find(histories(topology.clusters, endpoints, progress), apply_id)
    with Observer(
        topology.clusters,
        endpoints,
        timeout_s=timeout_ms / 1000,
        read_registry=read_registry,
        jobs_of=topology.name,
    ) as observer:
        required = required_keys(topology.policies)
        observed = observer.details(observer.names(), _wanted(applied.steps, required))
    return _plan(topology, applied, observed)


def _plan(topology: Topology, applied: ApplyRecord, observed: Observed) -> Plan:
    """Guards it like any other plan: protection and policies hold for a rollback too."""
    back = roll_back(applied, observed)
    plan = make_plan(Desired(topology.name), observed, back.changes, topology, Mode.ROLLBACK, now_text())
    plan = replace(plan, steps=back.steps, fingerprints=fingerprints(back.steps, observed, {}))
    return with_diagnostics(plan, [*back.diagnostics, *requirements(plan, plan.steps, observed)])


def _wanted(steps: Iterable[Step], required: frozenset[str]) -> Mapping[str, ClusterDetailsRequest]:
    """Returns what to read of the touched objects: the keys it set and those of policies, ACLs and quotas."""
    keys: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    acls: set[str] = set()
    quotas: set[str] = set()
    for step in steps:
        if step.address.kind is Kind.ACL:
            acls.add(step.cluster)
        elif step.address.kind is Kind.QUOTA:
            quotas.add(step.cluster)
        elif step.address.kind is Kind.TOPIC:
            keys[step.cluster][step.address.name] |= _keys(step) | required
    return {
        cluster: ClusterDetailsRequest(
            configs={name: TopicConfigsRequest(frozenset(found)) for name, found in keys[cluster].items()},
            acls=cluster in acls,
            quotas=cluster in quotas,
        )
        for cluster in keys.keys() | acls | quotas
    }


def _keys(step: Step) -> set[str]:
    return {*step.set, *step.unset} if isinstance(step, AlterConfigs) else set()

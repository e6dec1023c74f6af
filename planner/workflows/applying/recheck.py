"""Reads the clusters again before an apply: are they the planned ones, and does the plan still hold?"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from planner.kafka import ClusterEndpoint
from planner.model.diagnostic import Failure, error
from planner.model.observed import (
    ClusterDetailsRequest,
    Observed,
    ObservedCluster,
    TopicConfigsRequest,
    Unreachable,
)
from planner.model.plan import Plan
from planner.observe import Observer
from planner.plan.fingerprint import keys_of, other_clusters
from planner.plan.recheck import required_keys
from planner.state.registry import read_registry


@dataclass(frozen=True, slots=True)
class PlanRecheck:
    """Reads what a plan depends on. `timeout_ms`: how long a cluster may keep silent."""

    endpoints: Mapping[str, ClusterEndpoint]
    timeout_ms: int

    def refuse_others(self, plan: Plan, written: Iterable[str]) -> None:
        """Failure where a cluster that the plan changes is another one than is meant, or does not answer."""
        with self._observer(plan, written) as observer:
            found = observer.identities()
        refuse_silent(found)
        others = other_clusters(plan, {name: one for name, one in found.items() if isinstance(one, str)})
        if others:
            raise Failure(others)

    def again(self, plan: Plan, written: Iterable[str]) -> Observed:
        """Reads what the fingerprints, steps and policies name. Failure where a changed cluster is silent."""
        keys: dict[str, dict[str, TopicConfigsRequest]] = {name: {} for name in plan.connections}
        acls: set[str] = set()
        required = required_keys(plan.policies)
        for one in plan.fingerprints:
            cluster = one.address.cluster or ""
            if one.address.kind.value == "acl":
                acls.add(cluster)
            elif cluster in keys:
                keys[cluster][one.address.name] = TopicConfigsRequest(frozenset(one.config) | required)
        for step in plan.steps:
            topics = keys.get(step.cluster, {})
            if step.address.name in topics:
                known = topics[step.address.name]
                topics[step.address.name] = TopicConfigsRequest(known.keys | keys_of(step))
        wanted = {
            name: ClusterDetailsRequest(configs=topics, acls=name in acls) for name, topics in keys.items()
        }
        with self._observer(plan, plan.connections) as observer:
            observed = observer.details(observer.names(), wanted)
        refuse_silent({name: observed.clusters[name] for name in written})
        return observed

    def _observer(self, plan: Plan, clusters: Iterable[str]) -> Observer:
        return Observer(
            {name: plan.connections[name] for name in clusters},
            self.endpoints,
            timeout_s=self.timeout_ms / 1000,
            read_registry=read_registry,
            jobs_of=plan.topology,
        )


def refuse_silent(found: Mapping[str, str | ObservedCluster | Unreachable]) -> None:
    """Failure where a cluster that the plan changes does not answer."""
    silent = [one for one in found.values() if isinstance(one, Unreachable)]
    if silent:
        raise Failure(
            error(
                f"{one.name} does not answer, and the plan changes it: {one.why}",
                one.way_out or f"bring {one.name} back, then run this again",
            )
            for one in silent
        )

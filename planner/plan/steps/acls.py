"""ACL rules: what follows from a change, and the steps: create and delete."""

from collections.abc import Collection, Iterable, Iterator, Sequence

from planner.diff.record import acl_entry
from planner.model.address import Address, flow_address
from planner.model.change import Action, Change, Facts
from planner.model.desired import DesiredAcl
from planner.model.observed import ObservedCluster, RegistryEntry
from planner.model.step import RESTORE, Milestone, PlannedSteps, Step
from planner.model.topology import AclRule
from planner.plan.object_kind import EXISTS, UNREAD, ObjectKind, owner
from planner.plan.steps.registry import Own, registered

_REPLACE = "replace:"  # prefix of the id of a step that deletes a rule in whose place others were made


class AclStep(Step, frozen=True):
    """A step about one rule."""

    needed_right = "ALTER on the cluster"

    rule: AclRule

    def details(self, hidden: Collection[str]) -> Iterator[str]:
        yield self.rule.name


class CreateAcl(AclStep, frozen=True):
    """Creates an ACL rule."""

    verb = "create"
    past = "created"

    @property
    def milestone(self) -> Milestone | None:
        return Milestone.RIGHT_RESTORED if self.restores else Milestone.RULE_MADE

    def waits_for(self, others: PlannedSteps) -> Iterable[str]:
        """A right is given back after the flows of the plan have released their mirrors."""
        return others.at(self.cluster, Milestone.FLOW_REGISTERED) if self.restores else ()

    def precedes_job(self, clusters: Collection[str], destination: str, topics: Collection[Address]) -> bool:
        return self.cluster in clusters and not self.restores

    @property
    def left(self) -> Facts:
        return {EXISTS: True}

    @property
    def irreversible(self) -> tuple[str, str]:
        if not self.restores:
            return "", ""
        hint = "revert the edit of the topology, then apply"
        return "the plan of the topology decides who may write a mirror", hint


class DeleteAcl(AclStep, frozen=True):
    """Deletes an ACL rule."""

    verb = "delete"
    past = "deleted"

    @property
    def replaces(self) -> bool:
        """Returns whether other rules were made in the place of this one."""
        return self.id.startswith(_REPLACE)

    def waits_for(self, others: PlannedSteps) -> Iterable[str]:
        """A rule is replaced after the rules in its place are made.

        What protected a mirror is removed after its flow has released it, and after the right is given back.
        """
        if self.replaces:
            return others.at(self.cluster, Milestone.RULE_MADE)
        entry = others.owned.get(self.address)
        if entry is None:
            return ()
        if entry.is_protection:
            return others.at(self.cluster, Milestone.FLOW_REGISTERED, Milestone.RIGHT_RESTORED)
        released = others.flows.get(flow_address(entry.flow)) if entry.flow is not None else None
        return (released,) if released is not None else ()

    def precedes_job(self, clusters: Collection[str], destination: str, topics: Collection[Address]) -> bool:
        return self.cluster == destination and self.replaces

    @property
    def left(self) -> Facts:
        return {EXISTS: False}


class AclKind(ObjectKind):
    """ACL rules."""

    def steps(
        self,
        change: Change,
        desired: DesiredAcl,
        cluster: ObservedCluster,
        entry: RegistryEntry | None,
        topology: str,
    ) -> list[Step]:
        where, address = desired.rule.cluster, desired.address
        makes = change.action is Action.CREATE
        ours = entry is not None and entry.created
        record = acl_entry(desired, topology, created=makes or ours)
        if desired.replaced:
            registration = Own.of(record, where)
            return [
                registration,
                DeleteAcl(f"{_REPLACE}{address}", address, where, desired.rule, needs=(registration.id,)),
            ]
        prefix = RESTORE if desired.waits else "create:"
        create = CreateAcl(f"{prefix}{address}", address, where, desired.rule) if makes else None
        return registered(record, where, create, announce=makes and not ours)

    def removal(self, change: Change, entry: RegistryEntry, cluster: ObservedCluster) -> list[Step]:
        """The rule is deleted, or restored where `protect: acl` has replaced it."""
        rule, address = AclRule.recorded(cluster.name, entry.spec), entry.address
        match change.action:
            case Action.DELETE if rule is not None:
                return [DeleteAcl(f"delete:{address}", address, cluster.name, rule)]
            case Action.CREATE if rule is not None:
                return [CreateAcl(f"{RESTORE}{address}", address, cluster.name, rule)]
            case _:
                return []

    def facts(
        self,
        name: str,
        cluster: ObservedCluster,
        entry: RegistryEntry | None,
        keys: Collection[str],
        steps: Sequence[Step],
    ) -> Facts:
        names = cluster.acl_names
        return {**owner(entry), EXISTS: UNREAD if names is None else name in names}

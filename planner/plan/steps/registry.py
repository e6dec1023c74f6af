"""The steps that write what the registry remembers of an object of any kind."""

from collections.abc import Collection, Iterator, Mapping

from msgspec.structs import replace

from planner.diff.record import announced, recorded_flow
from planner.diff.typed_values import new_flow_values
from planner.model.address import Address, Kind
from planner.model.change import Facts, Value
from planner.model.observed import RegistryEntry
from planner.model.step import Milestone, Step
from planner.model.topology import OnRemove
from planner.plan.object_kind import recorded

NOT_READABLE = "(not readable)"


class Own(Step, frozen=True):
    """Writes the registry entry of an object: after its create or change, or alone when it is adopted.

    Three values are known only then and are filled in by the handler: `plan` (the digest of the plan),
    `at_ms`, and after a create the new topic's id as `spec["id"]`.
    """

    verb = "register"
    past = "recorded"
    registers = True
    in_one_batch = True

    entry: RegistryEntry

    @staticmethod
    def id_of(address: Address) -> str:
        """Returns the id of the step that registers an object."""
        return f"own:{address}"

    @staticmethod
    def of(entry: RegistryEntry, cluster: str, needs: tuple[str, ...] = ()) -> "Own":
        """Returns the step that registers an object after the steps with these ids."""
        return Own(Own.id_of(entry.address), entry.address, cluster, entry, needs=needs)

    def details(self, hidden: Collection[str]) -> Iterator[str]:
        """Yields what later plans read from the registry entry."""
        if self.address.kind is Kind.FLOW:
            yield NOT_READABLE if recorded_flow(self.entry) is None else ""
            return
        yield "protected" if self.entry.protect else ""
        yield "deleted when it leaves the topology" if self.entry.on_remove is OnRemove.DELETE else ""

    def values(self) -> Mapping[str, Value]:
        """A flow's fields are shown with its registry entry, since its job's spec holds them as one text."""
        flow = recorded_flow(self.entry) if self.address.kind is Kind.FLOW else None
        return new_flow_values(flow) if flow is not None else {}

    @property
    def milestone(self) -> Milestone | None:
        return Milestone.FLOW_REGISTERED if self.address.kind is Kind.FLOW else None

    @property
    def subject(self) -> str:
        return "entry"

    @property
    def left(self) -> Facts:
        return recorded(self.entry)


class Disown(Step, frozen=True):
    """Removes the registry entry: after a delete, or alone when an object is forgotten."""

    verb = "forget"
    past = "forgotten"
    registers = True

    topology: str

    @staticmethod
    def of(
        address: Address, cluster: str, topology: str, needs: tuple[str, ...] = (), name: str = ""
    ) -> "Disown":
        """Returns the step that forgets an object after the steps with these ids.

        `name` stands in the step's id where the plan has a step about the same object at another cluster.
        """
        return Disown(f"disown:{name or address}", address, cluster, topology, needs=needs)

    def details(self, hidden: Collection[str]) -> Iterator[str]:
        yield "no longer managed"

    @property
    def subject(self) -> str:
        return "entry"

    @property
    def left(self) -> Facts:
        return {("managed", self.topology): None}


def registered(record: RegistryEntry, cluster: str, step: Step | None, *, announce: bool) -> list[Step]:
    """Returns the step that changes a rule or a quota, if any, and the one that registers the object.

    Such an object is deleted only by the topology that made it, and does not name it itself. So a new one is
    registered before it is made, too.
    """
    address = record.address
    steps: list[Step] = []
    if announce:
        steps.append(Own(f"announce:{address}", address, cluster, announced(record)))
    if step is not None:
        steps.append(replace(step, needs=tuple(before.id for before in steps)))
    return [*steps, Own.of(record, cluster, tuple(before.id for before in steps[-1:]))]

"""A flow with a transform has slots of its own; the others share the rest."""

from msgspec.structs import replace

from runtime.contract.records.control import AssignedFlow, AssignedPartition
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.spec.files import FilesSpec, LinesSpec
from runtime.contract.spec.jobspec import ClusterSpec, FlowSpec, JobSpec, SelectionSpec
from runtime.contract.spec.restarts import regrouped
from runtime.contract.spec.transform import TransformSpec
from runtime.driver.slots.membership import Membership, slot_layout

FILTER = TransformSpec(where="true")


def flow(name: str, transform: TransformSpec | None = None) -> FlowSpec:
    topics = SelectionSpec(include=["t"])
    return FlowSpec(name=name, source="a", destination="b", topics=topics, transform=transform)


def job(*flows: FlowSpec) -> JobSpec:
    clusters = {"b": ClusterSpec(bootstrap="h:1")}
    return JobSpec(job="j", topology="t", destination="b", clusters=clusters, flows=list(flows))


def test_without_a_transform_every_slot_copies_every_flow() -> None:
    assert slot_layout([flow("x"), flow("y")], 3).by_slot == ("", "", "")
    assert slot_layout([], 2).by_slot == ("", "")


def test_each_flow_with_a_transform_has_its_own_slots() -> None:
    layout = slot_layout([flow("x"), flow("y", FILTER), flow("z", TransformSpec(where="false"))], 4)
    assert layout.by_slot == ("", "", "y", "z")
    assert [layout.slots_of(name) for name in ("x", "y", "z", "new")] == [[0, 1], [2], [3], [0, 1]]
    assert layout.transform(2) == FILTER
    assert layout.transform(0) is None


def test_there_are_at_least_as_many_slots_as_groups() -> None:
    assert slot_layout([flow("x"), flow("y", FILTER)], 1).by_slot == ("", "y")
    assert slot_layout([flow("y", FILTER)], 2).by_slot == ("y", "y")


def test_partitions_stay_within_the_slots_of_their_flow() -> None:
    layout = slot_layout([flow("x"), flow("y", FILTER)], 4)
    membership = Membership(range(4), layout.slots_of)
    keys = [PartitionKey(name, "t", number) for name in "xy" for number in range(6)]
    flows = {name: AssignedFlow(flow(name), 1) for name in "xy"}
    membership.set_wanted(flows, {}, {key: AssignedPartition(*key, destination_topic="t") for key in keys})
    for usable in ([0, 1, 2, 3], [0, 2], [0, 1]):  # without a usable slot, the flow keeps its own
        membership.set_usable(usable)
        for slot in range(4):
            published = membership.publish(slot) or membership.published(slot)
            assert set(published.flows) <= {"x" if slot < 2 else "y"}
            membership.acknowledge(slot, published.version)


def test_only_a_new_or_changed_transform_needs_a_restart() -> None:
    before = job(flow("x"), flow("y", FILTER))
    assert regrouped(before, before) == []
    assert regrouped(before, job(flow("x"))) == []
    assert regrouped(before, job(flow("x"), flow("y", FILTER), flow("new"))) == []
    assert regrouped(before, job(flow("x"), flow("y", TransformSpec(where="false")))) == ["y"]
    assert regrouped(before, job(flow("x", FILTER))) == ["x"]
    assert regrouped(before, job(flow("y"))) == ["y"]
    assert regrouped(before, job(flow("new", FILTER))) == ["new"]
    assert regrouped(job(flow("y", FILTER)), job(flow("y", FILTER), flow("raw"))) == ["raw"]


def test_a_flow_into_files_with_another_transform_needs_a_restart() -> None:
    """No record decides what a job reads of a record, or which registry it asks."""
    files = FilesSpec(endpoint="lake", folder="/lake", format="json")

    def into(transform: TransformSpec | None) -> JobSpec:
        return job(replace(flow("x", transform), files=files))

    assert regrouped(into(FILTER), into(FILTER)) == []
    assert regrouped(into(None), into(FILTER)) == ["x"]
    assert regrouped(into(FILTER), into(None)) == ["x"]


def test_a_flow_that_begins_to_read_sub_folders_needs_a_restart() -> None:
    """No record decides what a job reads."""

    def reading(*, recursive: bool) -> JobSpec:
        lines = LinesSpec(endpoint="in", folder="/in", format="text", topic="t", recursive=recursive)
        return job(replace(flow("x"), lines=lines))

    assert regrouped(reading(recursive=True), reading(recursive=True)) == []
    assert regrouped(reading(recursive=False), reading(recursive=True)) == ["x"]
    assert regrouped(reading(recursive=True), reading(recursive=False)) == ["x"]

"""Which schemas of a backup a restore registers, and which ones stand in the way."""

import pytest
from msgspec.structs import replace

from planner.model.diagnostic import Severity
from planner.model.observed import ObservedSubject
from planner.model.restore import RestoredSubject
from planner.workflows.flows.restored_schemas import RestoredSchemas
from runtime.contract.records.manifest import StoredSchemas
from runtime.contract.records.schemas import Reference, RegisteredSchema
from runtime.schemas.stored import BackedUpSchemas
from runtime.schemas.versions import SchemaVersion, with_referred
from tests.planner.graph.build import cluster

TOPICS = {"orders": "old.orders"}
ITEM = RegisteredSchema(subject="item", version=1, id=5, text='"long"')
ORDER = RegisteredSchema(
    subject="orders-value", version=1, id=7, text='"string"', references=(Reference("Item", "item", 1),)
)


def backup(*versions: RegisteredSchema) -> BackedUpSchemas:
    additions = [StoredSchemas(flow="f", number=1, versions=list(versions))] if versions else []
    return BackedUpSchemas("archive", additions)


def conflicts(name: str, version: SchemaVersion) -> list[str]:
    """The errors where the registry has this version alone."""
    there = cluster("dc2", subjects={name: ObservedSubject((version,))})
    found = list(RestoredSchemas(backup(ITEM, ORDER), TOPICS).diagnostics(there, registry=True))
    assert {diagnostic.severity for diagnostic in found} == {Severity.ERROR}
    return [diagnostic.summary for diagnostic in found]


def summarized(stored: RegisteredSchema) -> SchemaVersion:
    (version,) = backup(stored).every_version()[stored.subject]
    return version


def test_a_registry_that_has_the_schemas_gets_none_and_an_empty_one_gets_all() -> None:
    wanted = RestoredSchemas(backup(ITEM, ORDER), TOPICS)
    versions = with_referred(backup(ITEM, ORDER).every_version())
    (item,), (order,) = versions["item"], versions["orders-value"]
    assert list(wanted.missing(cluster("dc2"))) == [
        RestoredSubject("item", "item", (item,)),
        RestoredSubject("old.orders-value", "orders-value", (order,)),
    ]
    there = {"item": ObservedSubject((item,)), "old.orders-value": ObservedSubject((order,))}
    assert list(wanted.missing(cluster("dc2", subjects=there))) == []
    assert list(wanted.diagnostics(cluster("dc2", subjects=there), registry=True)) == []


def test_a_version_of_the_same_number_with_another_id_is_an_error() -> None:
    other = SchemaVersion(1, 1, "another")
    assert conflicts("old.orders-value", other) == [
        "orders-value version 1 in the backup has id 7, and at dc2 version 1 of old.orders-value has id 1"
    ]
    assert conflicts("item", other) == [
        "item version 1 in the backup has id 5, and at dc2 version 1 of item has id 1"
    ]


@pytest.mark.parametrize(
    "taken",
    [
        SchemaVersion(3, 7, "another", summarized(ORDER).references),
        SchemaVersion(3, 7, summarized(ORDER).fingerprint, (("item", 2),)),
    ],
    ids=["another text", "other references"],
)
def test_an_id_that_is_another_schema_is_an_error(taken: SchemaVersion) -> None:
    assert conflicts("other", taken) == [
        "schema id 7 is orders-value version 1 in the backup, and another schema at dc2: other version 3"
    ]


def test_topics_without_schemas_are_named_where_the_flow_keeps_schemas() -> None:
    def warnings(schemas: BackedUpSchemas, *, synced: bool) -> list[str]:
        topics = {"orders": "orders", "payments": "payments"}
        found = RestoredSchemas(schemas, topics, synced=synced).diagnostics(cluster("dc2"), registry=True)
        return [diagnostic.summary for diagnostic in found if diagnostic.severity is Severity.WARNING]

    what = "the flow keeps schemas, and the backup has none of"
    assert warnings(backup(), synced=False) == []
    assert warnings(backup(), synced=True) == [f"{what} orders, payments"]
    assert warnings(backup(ITEM, ORDER), synced=False) == [f"{what} payments"]


def test_translated_ids_take_any_registry_and_register_what_it_lacks_by_the_text() -> None:
    wanted = RestoredSchemas(backup(ITEM, ORDER), TOPICS, translated=True)
    versions = with_referred(backup(ITEM, ORDER).every_version())
    (item,), (order,) = versions["item"], versions["orders-value"]
    other = ObservedSubject((SchemaVersion(1, 7, "another"), replace(item, number=2, id=1)))
    own = ObservedSubject((replace(order, id=3),))
    there = cluster("dc2", subjects={"item": other, "old.orders-value": own})
    assert list(wanted.missing(there)) == []
    assert list(wanted.diagnostics(there, registry=True)) == []
    (without,) = wanted.diagnostics(cluster("dc2"), registry=False)
    assert without.severity is Severity.ERROR
    assert "dc2 has no schema registry" in without.summary

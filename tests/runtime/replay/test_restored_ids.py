"""The records of a backup get the ids that another registry gave to its schemas."""

import struct
from collections.abc import Iterator

import pytest

from runtime.batch import OutgoingBatch, Record, RewriteSpec, prepare, records
from runtime.contract.records.manifest import StoredSchemas
from runtime.contract.records.schemas import RegisteredSchema
from runtime.contract.spec.schemas import RegistrySpec, SubjectNames
from runtime.replay.request import CopyStopped, RestoredIds
from runtime.replay.schemas import restored_ids, with_restored_ids
from runtime.schemas.client import SchemaRegistry
from runtime.schemas.copier import SchemaNotCopied
from runtime.schemas.stored import BackedUpSchemas
from tests.fakes.registry import RegistryServer, registry_server
from tests.runtime.batch.forge import HERE, START, batch_bytes, sets

SPEC = RewriteSpec(HERE, 8 << 20)


def framed(number: int) -> bytes:
    return struct.pack(">bI", 0, number) + b"x"


def version(number: int, subject: str, text: str) -> RegisteredSchema:
    return RegisteredSchema(subject=subject, version=1, id=number, text=text)


def backup(names: SubjectNames = "topic_name") -> BackedUpSchemas:
    versions = [version(7, "orders-value", '"long"'), version(8, "others-value", '"string"')]
    if names == "record_name":
        versions = [version(7, "Order", '"long"')]
    return BackedUpSchemas("archive", [StoredSchemas(flow="f", number=1, versions=versions, names=names)])


@pytest.fixture
def there() -> Iterator[RegistryServer]:
    with registry_server() as server:
        yield server


async def ids_at(there: RegistryServer, names: SubjectNames = "topic_name") -> RestoredIds:
    registry = SchemaRegistry(RegistrySpec(url=there.url))
    try:
        return await restored_ids(backup(names), registry, "orders", "old.orders")
    finally:
        registry.close()


def restored(ids: RestoredIds, key: bytes | None, value: bytes) -> list[tuple[bytes | None, bytes | None]]:
    inside = [Record(100, START, key, value, ())]
    (out,) = prepare(sets(batch_bytes(inside)), SPEC, START).outgoing
    changed: list[OutgoingBatch] = list(with_restored_ids(out, ids, SPEC))
    assert [part.runs for part in changed] == [out.runs]
    return [(row.key, row.value) for part in changed for row in records(part.batch, HERE)]


async def test_only_the_parts_with_subjects_get_the_ids_of_the_registry(there: RegistryServer) -> None:
    there.add(2, '"long"', "old.orders-value")
    ids = await ids_at(there)
    assert ids == RestoredIds({7: 2}, ["value"], every=True)
    assert restored(ids, framed(7), framed(7)) == [(framed(7), framed(2))]


async def test_a_schema_that_the_registry_lacks_stops_the_restore_before_a_record_is_written(
    there: RegistryServer,
) -> None:
    with pytest.raises(SchemaNotCopied, match=r"old\.orders-value"):
        await ids_at(there)


async def test_an_id_that_the_backup_does_not_have_stops_its_partition_by_name(there: RegistryServer) -> None:
    there.add(2, '"long"', "old.orders-value")
    ids = await ids_at(there)
    with pytest.raises(CopyStopped, match="schema id 9 of the record at 100 is not in the backup"):
        restored(ids, None, framed(9))


async def test_a_number_is_no_id_where_subjects_tell_no_topic(there: RegistryServer) -> None:
    there.add(2, '"long"', "Order")
    ids = await ids_at(there, "record_name")
    assert restored(ids, framed(9), framed(7)) == [(framed(9), framed(2))]

"""The gate against two registries: what passes, what waits, and what becomes of ids."""

import asyncio
import random
import struct
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Literal
from uuid import UUID

import pytest

from runtime.batch import Record, RewriteSpec, TooLarge, prepare, records
from runtime.batch.schema_ids import SchemaIds, SchemaMissing, schema_ids
from runtime.contract.records.control import AssignedPartition
from runtime.contract.spec.schemas import RegistrySpec, SchemaSync, SubjectNames
from runtime.schemas.client import SchemaRegistry
from runtime.slot.partition import Cursor, PartitionCopy
from runtime.slot.read import schema_gate
from runtime.slot.read.batch_filter import FilteredBatches
from runtime.slot.read.schema_gate import SchemaGate
from tests.fakes.partition import partition
from tests.fakes.registry import RegistryServer, registry_server
from tests.runtime.batch.forge import HERE, START, batch_bytes, sets
from tests.runtime.slot.world import flow_spec
from tests.waiting import until

SPEC = RewriteSpec(HERE, 8 << 20)
LONG = {"type": "long"}


class Gated:
    """A gate between two registries; the destination's first id is 5."""

    def __init__(self, here: RegistryServer, there: RegistryServer) -> None:
        self.here, self.there = here, there
        self.source = SchemaRegistry(RegistrySpec(url=here.url), {})
        self.destination = SchemaRegistry(RegistrySpec(url=there.url), {})
        self.gate = self.with_sync()
        progress = partition().progress
        self.copies = [
            PartitionCopy(AssignedPartition("flow", "orders", number, "copied"), progress)
            for number in (0, 1)
        ]

    def with_sync(
        self, subjects: SubjectNames = "topic_name", ids: Literal["keep", "translate"] = "translate"
    ) -> SchemaGate:
        sync = SchemaSync(sync=True, ids=ids, subjects=subjects)
        return SchemaGate(flow_spec("flow", schemas=sync), self.source, self.destination, asyncio.create_task)

    async def admit(
        self,
        *values: bytes | None,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        spec: RewriteSpec = SPEC,
        number: int = 0,
        first: int = 100,
        epoch: int = 7,
    ) -> FilteredBatches:
        """Admits a batch of these values in a partition, from offset 100 on."""
        inside = [Record(first + at, START, key, value, tuple(headers)) for at, value in enumerate(values)]
        return await self.admit_batches(inside, spec=spec, number=number, epoch=epoch)

    async def admit_batches(
        self, *batches: Sequence[Record], spec: RewriteSpec = SPEC, number: int = 0, epoch: int = 7
    ) -> FilteredBatches:
        """Admits a response with these batches."""
        data = b"".join(map(batch_bytes, batches))
        outgoing = [out._replace(epoch=epoch) for out in prepare(sets(data), SPEC, START).outgoing]
        end = Cursor(batches[-1][-1].offset + 1, epoch)
        return await self.gate.admit(self.copies[number], FilteredBatches(outgoing, end, [], None), spec)

    async def lookups_ended(self) -> None:
        """Waits as a slot does before it fetches records again."""
        await until(lambda: not self.gate.waiting)


def framed(number: int, payload: bytes = b"x") -> bytes:
    return struct.pack(">bI", 0, number) + payload


def read(filtered: FilteredBatches) -> list[tuple[int, bytes | None]]:
    return [(one.offset, one.value) for out in filtered.outgoing for one in records(out.batch, HERE)]


@pytest.fixture
def gated() -> Iterator[Gated]:
    with registry_server() as here, registry_server() as there:
        there.add(4, {"type": "enum", "name": "E", "symbols": ["A"]}, "other")
        world = Gated(here, there)
        yield world
        for client in (world.source, world.destination):
            client.close()


async def test_known_schemas_pass_and_are_read_once(gated: Gated) -> None:
    gated.here.add(1, LONG, "orders-value")
    first = await gated.admit(framed(1), None, b"plain", framed(1, b""))
    assert read(first) == [(100, framed(5)), (101, None), (102, b"plain"), (103, framed(5, b""))]
    assert first.cursor == Cursor(104, 7)
    assert first.failure is None
    assert gated.there.subjects["copied-value"] == {1: 5}
    asked = len(gated.here.asked) + len(gated.there.asked)
    assert read(await gated.admit(framed(1))) == [(100, framed(5))]
    assert len(gated.here.asked) + len(gated.there.asked) == asked


async def test_the_first_record_without_its_schema_waits_until_the_registry_is_back(gated: Gated) -> None:
    gated.here.add(1, LONG, "orders-value")
    await gated.admit(framed(1))
    gated.there.down = True
    gated.there.levels[None] = "NONE"
    gated.here.add(2, {"type": "string"}, "orders-value")
    stopped = await gated.admit(framed(1), b"plain", framed(2), framed(1))
    assert read(stopped) == [(100, framed(5)), (101, b"plain")]
    assert stopped.cursor == Cursor(102, 7)
    assert isinstance(stopped.failure, SchemaMissing)
    assert "schema id 2" in str(stopped.failure)
    assert gated.there.url in str(stopped.failure)
    assert gated.gate.waiting == 1
    gated.there.down = False
    assert read(await gated.admit(framed(2), framed(1))) == [(100, framed(6)), (101, framed(5))]
    assert gated.gate.waiting == 0


async def test_a_source_that_does_not_answer_holds_only_what_looks_like_an_id(gated: Gated) -> None:
    gated.here.down = True
    assert read(await gated.admit(b"plain")) == [(100, b"plain")]
    stopped = await gated.admit(framed(1))
    assert (read(stopped), stopped.cursor.offset) == ([], 100)
    assert isinstance(stopped.failure, SchemaMissing)


@pytest.mark.parametrize("subjects", ["topic_name", "topic_record_name", "record_name"])
@pytest.mark.parametrize(
    "answer", [(422, {"message": "not now"}), (404, "default backend")], ids=["a refusal", "of a proxy"]
)
async def test_a_source_that_says_nothing_of_the_schema_holds_the_record(
    gated: Gated, subjects: SubjectNames, answer: tuple[int, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gated.here, "answer", lambda *_: answer)
    gated.gate = gated.with_sync(subjects)
    filtered = await gated.admit(framed(1))
    assert read(filtered) == []
    assert isinstance(filtered.failure, SchemaMissing)


async def test_numbers_are_no_ids_until_the_topic_has_a_subject(gated: Gated) -> None:
    gated.here.add(1, LONG, "orders-value")
    gated.here.add(9, {"type": "string"}, "others-value")
    number = struct.pack(">q", 9 << 24)
    assert read(await gated.admit(framed(1), key=number)) == [(100, framed(5))]
    assert "copied-key" not in gated.there.subjects
    gated.here.add(9, {"type": "string"}, "orders-key")
    out, *_ = (await gated.admit(framed(1), key=number)).outgoing
    assert records(out.batch, HERE)[0].key == struct.pack(">q", 6 << 24)
    assert gated.there.subjects["copied-key"] == {1: 6}


async def test_a_source_that_lost_a_subject_which_the_destination_has_holds_its_records(gated: Gated) -> None:
    gated.there.add(4, {"type": "enum", "name": "E", "symbols": ["A"]}, "copied-value")
    filtered = await gated.admit(framed(1))
    assert read(filtered) == []
    assert "has no subject orders-value" in str(filtered.failure)
    gated.here.add(1, LONG, "orders-value")
    gated.there.levels[None] = "NONE"
    assert read(await gated.admit(framed(1))) == [(100, framed(5))]


async def test_a_schema_that_was_deleted_at_the_source_is_copied_for_its_records(gated: Gated) -> None:
    gated.here.add(1, LONG, "orders-value")
    gated.here.add(2, {"type": "long", "doc": "new"}, "orders-value")
    gated.here.soft_deleted.add(("orders-value", 1))
    gated.there.levels[None] = "NONE"
    assert read(await gated.admit(framed(1))) == [(100, framed(5))]


async def test_the_id_of_another_topics_schema_is_a_number_where_subjects_name_their_topic(
    gated: Gated,
) -> None:
    gated.gate = gated.with_sync("topic_record_name")
    gated.here.add(1, LONG, "orders-com.example.Order")
    gated.here.add(9, {"type": "string"}, "others-com.example.Key")
    number = struct.pack(">q", 9 << 24)
    out, *_ = (await gated.admit(framed(1), key=number)).outgoing
    assert [(one.key, one.value) for one in records(out.batch, HERE)] == [(number, framed(5))]
    assert gated.there.subjects["copied-com.example.Order"] == {1: 5}


async def test_partitions_that_ask_for_the_same_number_pass_together(gated: Gated) -> None:
    gated.gate = gated.with_sync("record_name")
    both = await asyncio.gather(gated.admit(framed(3)), gated.admit(framed(3), number=1))
    assert [read(one) for one in both] == [[(100, framed(3))]] * 2


async def test_a_record_that_packs_to_too_much_stops_its_partition_behind_those_before_it(
    gated: Gated,
) -> None:
    gated.here.add(1, LONG, "orders-value")
    large = framed(1, random.Random(7).randbytes(5_000))
    filtered = await gated.admit(framed(1), framed(1), large, framed(1), spec=RewriteSpec(HERE, 1_000))
    assert read(filtered) == [(100, framed(5)), (101, framed(5))]
    assert isinstance(filtered.failure, TooLarge)
    assert (filtered.failure.offset, filtered.cursor.offset) == (102, 102)


async def test_a_number_becomes_an_id_once_the_source_registers_it(gated: Gated) -> None:
    gated.gate = gated.with_sync("record_name")
    assert read(await gated.admit(framed(1))) == [(100, framed(1))]
    gated.here.add(1, LONG, "com.example.Order")
    assert read(await gated.admit(framed(1))) == [(100, framed(5))]
    assert gated.there.subjects["com.example.Order"] == {1: 5}


async def test_an_answer_that_comes_late_counts_for_the_records_that_were_fetched_before(
    gated: Gated,
) -> None:
    gated.gate = gated.with_sync("record_name")
    gated.here.open.clear()
    assert read(await gated.admit(framed(1), framed(1))) == []
    gated.here.open.set()
    await gated.lookups_ended()
    gated.here.add(1, LONG, "com.example.Order")
    again = await gated.admit(framed(1), framed(1), framed(1))
    assert read(again) == [(100, framed(1)), (101, framed(1))]
    assert again.cursor.offset == 102
    assert read(await gated.admit(framed(1), first=102)) == [(102, framed(5))]


async def test_an_answer_that_comes_late_counts_for_its_own_partition_and_log(gated: Gated) -> None:
    gated.gate = gated.with_sync("record_name")
    gated.here.open.clear()
    assert read(await gated.admit(framed(1))) == []
    gated.here.open.set()
    await gated.lookups_ended()
    gated.here.add(1, LONG, "com.example.Order")
    assert read(await gated.admit(framed(1), number=1)) == [(100, framed(5))]
    assert read(await gated.admit(framed(1), epoch=8)) == [(100, framed(5))]  # the log was truncated


async def test_a_part_without_a_subject_passes_once_the_registry_has_said_so(gated: Gated) -> None:
    gated.here.add(1, LONG, "orders-value")
    gated.here.open.clear()
    number = struct.pack(">q", 9)
    assert read(await gated.admit(framed(1), key=number)) == []
    gated.here.open.set()
    async with asyncio.timeout(60):
        while len(read(filtered := await gated.admit(framed(1), key=number))) == 0:
            assert isinstance(filtered.failure, SchemaMissing)
    assert read(filtered) == [(100, framed(5))]
    assert records(filtered.outgoing[0].batch, HERE)[0].key == number


@pytest.mark.slow
async def test_numbers_pass_where_each_answer_takes_three_seconds(gated: Gated) -> None:
    gated.gate = gated.with_sync("record_name")
    gated.here.slow_s = 3.0
    values, first = [framed(number) for number in range(1, 6)], 100
    async with asyncio.timeout(60):
        while first < 110:  # more records come meanwhile
            first = (await gated.admit(*values[first - 100 :], key=framed(first), first=first)).cursor.offset
            values.append(framed(1))
            await asyncio.sleep(0.1)
    assert gated.there.asked == []


async def test_an_id_that_the_source_does_not_know_waits_by_name(gated: Gated) -> None:
    gated.here.add(1, LONG, "orders-value")
    stopped = await gated.admit(framed(1), framed(3))
    assert read(stopped) == [(100, framed(5))]
    assert "schema id 3" in str(stopped.failure)


async def test_a_schema_that_the_destination_refuses_holds_its_records_until_it_takes_it(
    gated: Gated,
) -> None:
    gated.here.add(1, {"type": "record", "name": "Order", "fields": []}, "orders-value")
    required = [{"name": "a", "type": "long"}]
    gated.here.add(2, {"type": "record", "name": "Order", "fields": required}, "orders-value")
    stopped = await gated.admit(framed(1), framed(2))
    assert read(stopped) == [(100, framed(5))]
    assert "incompatible" in str(stopped.failure)
    gated.there.levels[None] = "NONE"
    assert read(await gated.admit(framed(2))) == [(100, framed(6))]


async def test_kept_ids_stay_and_one_that_means_another_schema_holds_its_records(gated: Gated) -> None:
    gated.gate = gated.with_sync(ids="keep")
    gated.here.add(9, {"type": "string"}, "orders-value")
    gated.here.add(4, LONG, "orders-value")
    stopped = await gated.admit(framed(9), framed(4))
    assert read(stopped) == [(100, framed(9))]
    assert "other version 1" in str(stopped.failure)
    assert gated.there.subjects["copied-value"] == {1: 9}


async def test_versions_keep_their_order_whichever_record_comes_first(gated: Gated) -> None:
    """The last one is what a registry compares with, and what new producers read."""
    fields = [{"name": f"f{at}", "type": "long", "default": 0} for at in range(3)]
    for number in (1, 2, 3):
        order = {"type": "record", "name": "Order", "fields": fields[:number]}
        gated.here.add(number, order, "orders-value")
    assert read(await gated.admit(framed(2), framed(1))) == [(100, framed(6)), (101, framed(5))]
    assert read(await gated.admit(framed(3))) == [(100, framed(7))]
    assert gated.there.subjects["copied-value"] == {1: 5, 2: 6, 3: 7}


async def test_partitions_with_the_same_new_schema_pass_together(gated: Gated) -> None:
    gated.here.add(1, LONG, "orders-value")
    both = await asyncio.gather(gated.admit(framed(1)), gated.admit(framed(1), number=1))
    assert [read(one) for one in both] == [[(100, framed(5))]] * 2
    assert gated.there.asked == ["/subjects/copied-value/versions"]


async def test_more_schemas_than_a_response_may_ask_for_pass_with_the_next_one(gated: Gated) -> None:
    gated.there.levels[None] = "NONE"
    for number in range(1, 131):
        gated.here.add(number, {"type": "enum", "name": f"N{number}", "symbols": ["A"]}, "orders-value")
    values = [framed(number) for number in range(1, 131)]
    passed: list[tuple[int, bytes | None]] = []
    while len(passed) < len(values):
        known = len(gated.there.schemas)
        passed += read(await gated.admit(*values[len(passed) :]))
        await gated.lookups_ended()
        assert len(gated.there.schemas) - known <= 100
    for (_, value), number in zip(passed, range(1, 131), strict=True):
        assert value is not None
        (there,) = struct.unpack(">I", value[1:5])
        assert gated.there.schemas[there]["schema"] == gated.here.schemas[number]["schema"]


@pytest.mark.parametrize("values", [[b"v"] * 10_000, [bytes(1 << 20)]], ids=["many records", "many bytes"])
async def test_other_tasks_go_on_while_a_large_batch_is_unpacked(
    gated: Gated, values: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    find, gone_on = schema_ids, threading.Event()

    def find_meanwhile(*given: Any) -> SchemaIds:
        assert gone_on.wait(60)
        return find(*given)

    monkeypatch.setattr(schema_gate, "schema_ids", find_meanwhile)
    asyncio.get_running_loop().call_soon(gone_on.set)
    assert len(read(await gated.admit(*values))) == len(values)


async def test_batches_of_one_response_share_its_lookups(gated: Gated) -> None:
    gated.there.levels[None] = "NONE"
    for number in range(1, 131):
        gated.here.add(number, {"type": "enum", "name": f"N{number}", "symbols": ["A"]}, "orders-value")
    inside = [Record(99 + number, START, None, framed(number), ()) for number in range(1, 131)]
    known = len(gated.there.schemas)
    await gated.admit_batches(inside[:65], inside[65:])
    await gated.lookups_ended()
    assert 65 <= len(gated.there.schemas) - known < 100  # one lookup was for the topic's subject


def in_header(guid: str) -> list[tuple[str, bytes | None]]:
    return [("__value_schema_id", b"\1" + UUID(guid).bytes)]


async def test_a_record_waits_until_its_schema_is_found_by_the_guid_in_its_header(gated: Gated) -> None:
    gated.here.add(1, LONG, "orders-value")
    guid = gated.here.guid(1)
    gated.there.down = True
    stopped = await gated.admit(framed(9), headers=in_header(guid))
    assert (read(stopped), stopped.cursor.offset) == ([], 100)
    assert f"schema {guid}: " in str(stopped.failure)
    gated.there.down = False
    assert read(await gated.admit(framed(9), headers=in_header(guid))) == [(100, framed(9))]
    assert gated.there.subjects["copied-value"] == {1: 5}
    gated.there.asked.clear()
    await gated.admit(framed(9), headers=in_header(guid))
    assert gated.there.asked == []


async def test_a_guid_that_the_source_does_not_know_waits_by_name(gated: Gated) -> None:
    guid = str(UUID(int=7))
    stopped = await gated.admit(b"payload", headers=in_header(guid))
    assert read(stopped) == []
    assert f"schema {guid}: the registry has no schema {guid}" in str(stopped.failure)


async def test_a_schema_with_another_guid_at_the_destination_holds_its_records(gated: Gated) -> None:
    """Its references have other versions there."""
    gated.here.add(1, {"type": "string"}, "customer")
    gated.here.add(2, {"type": "int"}, "customer")
    gated.there.levels[None] = "NONE"
    gated.here.add(
        3, LONG, "orders-value", references=[{"name": "customer", "subject": "customer", "version": 2}]
    )
    gated.there.add(3, {"type": "boolean"}, "customer")
    stopped = await gated.admit(b"payload", headers=in_header(gated.here.guid(3)))
    assert "the schema has another GUID at the destination" in str(stopped.failure)


async def test_the_guid_of_a_schema_in_no_subject_of_the_topic_says_so(gated: Gated) -> None:
    gated.gate = gated.with_sync("topic_record_name")
    gated.here.add(1, LONG, "other-long")
    stopped = await gated.admit(b"payload", headers=in_header(gated.here.guid(1)))
    assert "the source has it (id 1) in no subject of the topic" in str(stopped.failure)
    assert "copied-value" not in gated.there.subjects


@pytest.mark.parametrize("side", ["here", "there"])
async def test_a_registry_without_guids_is_named_once_and_its_records_pass(
    gated: Gated, side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[tuple[str, object]] = []
    monkeypatch.setattr(schema_gate, "log_event", lambda event, **more: events.append((event, more["error"])))
    registry: RegistryServer = getattr(gated, side)
    registry.guids = False
    for number in (7, 8):
        headers = in_header(str(UUID(int=number)))
        assert read(await gated.admit(b"payload", headers=headers)) == [(100, b"payload")]
    why = f"{registry.url}: it knows no GUIDs of schemas"
    assert events == [("schema_guids_unknown", why)]
    assert gated.gate.note == f"records that name their schema by a GUID do not wait for it: {why}"


async def test_a_registry_without_guids_is_asked_again_after_a_while(
    gated: Gated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One old node of several may have answered."""
    gated.here.add(1, LONG, "orders-value")
    headers = in_header(gated.here.guid(1))
    gated.there.guids = False
    named = Record(100, START, None, b"named", tuple(headers))
    unknown = Record(101, START, None, framed(8), ())
    assert read(await gated.admit_batches([named, unknown])) == [(100, b"named")]
    gated.there.guids = True
    monkeypatch.setattr(gated.gate, "_guids_again", 0.0)  # the while is over
    gated.there.down = True
    assert read(await gated.admit_batches([named, unknown])) == []
    gated.there.down = False
    gated.here.add(8, {"type": "int"}, "orders-value")
    gated.there.levels[None] = "NONE"
    assert len(read(await gated.admit_batches([named, unknown]))) == 2
    assert gated.there.guid(5) == gated.here.guid(1)
    assert gated.gate.note == ""


async def test_a_404_of_a_proxy_says_nothing_of_guids(gated: Gated, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gated.here, "answer", lambda *_: (404, "default backend"))
    stopped = await gated.admit(b"payload", headers=in_header(str(UUID(int=7))))
    assert isinstance(stopped.failure, SchemaMissing)


async def test_an_id_in_a_header_becomes_that_of_the_destination(gated: Gated) -> None:
    gated.here.add(1, LONG, "orders-value")
    filtered = await gated.admit(framed(9), headers=[("__value_schema_id", framed(1))])
    (record,) = records(filtered.outgoing[0].batch, HERE)
    assert (record.value, record.headers) == (framed(9), (("__value_schema_id", framed(5)),))

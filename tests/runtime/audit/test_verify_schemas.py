"""What a copy must hold where a flow translates the ids of schemas."""

from collections.abc import Iterator
from uuid import UUID

import pytest
from msgspec.structs import replace

from runtime.audit.verify.pieces import ComparedRecord, RecordDifference
from runtime.audit.verify.results import differences_of
from runtime.audit.verify.schemas import ComparableContents
from runtime.contract.records.consumer_record import ConsumerRecord
from runtime.contract.spec.schemas import RegistrySpec, SchemaSync
from runtime.schemas.client import SchemaRegistry
from runtime.schemas.copier import SchemaFinder
from runtime.schemas.id_map import SchemaIdMap
from tests.fakes.registry import RegistryServer, registry_server
from tests.fakes.verification import fetched

ORDER = {"type": "record", "name": "Order", "fields": []}
KEY, PAYLOAD = b"\x00\x00\x00\x00\x07key", bytes(100)
ORIGINAL = replace(fetched(0, (7).to_bytes(5) + PAYLOAD, 1), key=KEY)  # the topic's keys have no subject


@pytest.fixture
def there() -> Iterator[RegistryServer]:
    """The registry of the destination. Schema 7 of the source is not there yet."""
    with registry_server() as found:
        yield found


@pytest.fixture
def contents(there: RegistryServer) -> Iterator[ComparableContents]:
    with registry_server() as here:
        here.add(7, ORDER, "t-value")
        source, destination = (SchemaRegistry(RegistrySpec(url=server.url)) for server in (here, there))
        finder = SchemaFinder(source, destination, SchemaSync(sync=True, ids="translate"))
        yield ComparableContents(SchemaIdMap(finder, "t", "copied"))


HEADER = "__value_schema_id"
GUID = b"\1" + UUID(int=7).bytes


def with_headers(*contents: bytes | None, number: int = 7) -> ConsumerRecord:
    """The value is of this schema id; headers may name another one."""
    headers = tuple((HEADER, content) for content in contents)
    return replace(ORIGINAL, value=number.to_bytes(5) + PAYLOAD, headers=headers)


def id_of(number: int, more: bytes = b"") -> bytes:
    return number.to_bytes(5) + more


@pytest.mark.parametrize(
    ("original", "equal", "different"),
    [
        (with_headers(), with_headers(number=9), [with_headers(), with_headers(number=10)]),
        (with_headers(b"guid"), with_headers(b"guid"), [with_headers(b"guid", number=9)]),
        (with_headers(id_of(7, b"more")), with_headers(id_of(9, b"more")), [with_headers(id_of(7, b"more"))]),
        (with_headers(None), with_headers(None, number=9), [with_headers(None)]),
        (
            with_headers(id_of(3), id_of(7)),
            with_headers(id_of(3), id_of(9)),
            [with_headers(id_of(3), id_of(10)), with_headers(id_of(10), id_of(9))],
        ),
        (with_headers(number=2**31), with_headers(number=2**31), [with_headers(number=9)]),
    ],
    ids=[
        "the id in the value",
        "a header names the schema: the value stays",
        "the id in a header",
        "a null header leaves the id to the value",
        "the last of two headers counts",
        "bytes that no registry gives as an id",
    ],
)
async def test_a_copy_is_equal_with_the_id_that_its_schema_has_at_the_destination(
    there: RegistryServer,
    contents: ComparableContents,
    original: ConsumerRecord,
    equal: ConsumerRecord,
    different: list[ConsumerRecord],
) -> None:
    there.add(9, ORDER, "copied-value")
    there.add(10, ORDER, "other")
    (content,) = await contents.originals([original])
    assert content == contents.copy(equal)
    assert content not in map(contents.copy, different)


async def test_a_difference_names_both_ids(there: RegistryServer, contents: ComparableContents) -> None:
    there.add(9, ORDER, "copied-value")
    (content,) = await contents.originals([ORIGINAL])
    edit = RecordDifference(
        "changed", 0, ComparedRecord(0, 0, content), ComparedRecord(0, 0, contents.copy(ORIGINAL))
    )
    (difference,) = differences_of([edit])
    assert (difference.fields, difference.why) == (["value"], "schema id of the value 9 → 7")


async def test_a_guid_is_compared_in_its_header(there: RegistryServer, contents: ComparableContents) -> None:
    there.add(9, ORDER, "copied-value")
    named = with_headers(b"\1" + UUID(there.guid(9)).bytes)
    (content,) = await contents.originals([named])
    assert content == contents.copy(named)
    assert content != contents.copy(with_headers(GUID))


@pytest.mark.parametrize(
    ("original", "why"),
    [
        (ORIGINAL, "schema id 7: the registry has no such schema in copied-value"),
        (with_headers(GUID), f"schema {UUID(int=7)}: the registry has no schema {UUID(int=7)}"),
    ],
    ids=["id", "guid"],
)
async def test_a_schema_that_the_destination_lacks_is_a_difference_whatever_the_copy_holds(
    contents: ComparableContents, original: ConsumerRecord, why: str
) -> None:
    (content,) = await contents.originals([original])
    assert content != contents.copy(original)
    assert content.value_schema == why

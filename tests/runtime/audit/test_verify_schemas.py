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


async def test_a_copy_is_equal_with_the_id_that_its_schema_has_at_the_destination(
    there: RegistryServer, contents: ComparableContents
) -> None:
    there.add(9, ORDER, "copied-value")
    (content,) = await contents.originals([ORIGINAL])
    right, wrong = (contents.copy(replace(ORIGINAL, value=at.to_bytes(5) + PAYLOAD)) for at in (9, 7))
    assert content == right
    edit = RecordDifference("changed", 0, ComparedRecord(0, 0, content), ComparedRecord(0, 0, wrong))
    (difference,) = differences_of([edit])
    assert (difference.fields, difference.why) == (["value"], "schema id of the value 9 → 7")


async def test_a_schema_that_the_destination_lacks_is_a_difference_whatever_the_copy_holds(
    contents: ComparableContents,
) -> None:
    (content,) = await contents.originals([ORIGINAL])
    assert content != contents.copy(ORIGINAL)
    assert content.value_schema == "schema id 7: the registry has no such schema in copied-value"


async def test_a_value_whose_header_names_the_schema_is_compared_as_it_is(
    contents: ComparableContents,
) -> None:
    named = replace(ORIGINAL, headers=(("__value_schema_id", b"guid"),))
    (content,) = await contents.originals([named])
    assert content == contents.copy(named)


async def test_an_id_in_a_header_is_compared_by_what_it_means(
    there: RegistryServer, contents: ComparableContents
) -> None:
    there.add(9, ORDER, "copied-value")

    def named(number: int) -> ConsumerRecord:
        return replace(ORIGINAL, headers=(("__value_schema_id", number.to_bytes(5) + b"more"),))

    (content,) = await contents.originals([named(7)])
    assert content == contents.copy(named(9))
    assert content != contents.copy(named(7))


HEADER = "__value_schema_id"


def with_headers(*contents: bytes | None, number: int = 7) -> ConsumerRecord:
    headers = tuple((HEADER, content) for content in contents)
    return replace(ORIGINAL, value=number.to_bytes(5) + PAYLOAD, headers=headers)


async def test_a_null_header_leaves_the_id_to_the_payload(
    there: RegistryServer, contents: ComparableContents
) -> None:
    there.add(9, ORDER, "copied-value")
    (content,) = await contents.originals([with_headers(None)])
    assert content == contents.copy(with_headers(None, number=9))
    assert content != contents.copy(with_headers(None))


async def test_of_two_headers_the_last_names_the_schema(
    there: RegistryServer, contents: ComparableContents
) -> None:
    there.add(9, ORDER, "copied-value")
    there.add(10, ORDER, "other")
    first, seven, nine, ten = (number.to_bytes(5) for number in (3, 7, 9, 10))
    (content,) = await contents.originals([with_headers(first, seven)])
    assert content == contents.copy(with_headers(first, nine))
    assert content != contents.copy(with_headers(first, ten))
    assert content != contents.copy(with_headers(ten, nine))  # the earlier one is not translated


async def test_a_guid_that_the_destination_lacks_is_a_difference(
    there: RegistryServer, contents: ComparableContents
) -> None:
    guid = UUID(int=7)
    named = with_headers(b"\1" + guid.bytes)
    (content,) = await contents.originals([named])
    assert content.value_schema == f"schema {guid}: the registry has no schema {guid}"
    assert content != contents.copy(named)


async def test_a_guid_is_compared_in_its_header(there: RegistryServer, contents: ComparableContents) -> None:
    there.add(9, ORDER, "copied-value")
    named, other = (with_headers(b"\1" + UUID(guid).bytes) for guid in (there.guid(9), str(UUID(int=7))))
    (content,) = await contents.originals([named])
    assert content == contents.copy(named)
    assert content != contents.copy(other)


async def test_bytes_that_no_registry_gives_as_an_id_are_compared_as_they_are(
    contents: ComparableContents,
) -> None:
    record = with_headers(number=2**31)
    (content,) = await contents.originals([record])
    assert content == contents.copy(record)
    assert content.value_schema is None

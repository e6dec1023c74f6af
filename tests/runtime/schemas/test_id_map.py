"""The ids of a topic's schemas at the source, and those at the destination."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from runtime.contract.spec.schemas import RegistrySpec, SchemaSync
from runtime.schemas.client import RegistryUnavailable, SchemaRegistry
from runtime.schemas.copier import SchemaCopier, SchemaFinder
from runtime.schemas.id_map import SchemaIdMap
from tests.fakes.registry import RegistryServer, registry_server

ORDER: dict[str, Any] = {"type": "record", "name": "Order", "fields": []}
OTHER: dict[str, Any] = {"type": "enum", "name": "Other", "symbols": ["A"]}
TRANSLATE, KEEP = SchemaSync(sync=True, ids="translate"), SchemaSync(sync=True)


class Pair(NamedTuple):
    here: RegistryServer
    there: RegistryServer

    def clients(self) -> tuple[SchemaRegistry, SchemaRegistry]:
        return SchemaRegistry(RegistrySpec(url=self.here.url)), SchemaRegistry(
            RegistrySpec(url=self.there.url)
        )

    def found(self) -> SchemaIdMap:
        """The ids of the topic `t`, which is called `copied` at the destination."""
        return SchemaIdMap(SchemaFinder(*self.clients(), TRANSLATE), "t", "copied")


@pytest.fixture
def pair() -> Iterator[Pair]:
    with registry_server() as here, registry_server() as there:
        here.add(7, ORDER, "t-value")
        there.add(1, OTHER, "other-value")
        yield Pair(here, there)


async def test_an_id_is_that_of_the_same_schema_and_is_looked_up_once(pair: Pair) -> None:
    pair.there.add(40, ORDER, "copied-value")
    ids = pair.found()
    assert await ids.read([("value", 7)]) == {("value", 7): 40}
    asked = len(pair.here.asked) + len(pair.there.asked)
    assert await ids.read([("value", 7)]) == {("value", 7): 40}
    assert len(pair.here.asked) + len(pair.there.asked) == asked


async def test_references_may_have_other_versions_at_the_destination(pair: Pair) -> None:
    pair.here.add(8, OTHER, "item", version=5)
    pair.here.add(9, ORDER, "t-value", references=[{"name": "Other", "subject": "item", "version": 5}])
    pair.there.add(1, OTHER, "item", version=1)
    pair.there.add(51, ORDER, "copied-value", references=[{"name": "Other", "subject": "item", "version": 1}])
    assert await pair.found().read([("value", 9)]) == {("value", 9): 51}


async def test_a_number_in_keys_without_a_subject_stays(pair: Pair) -> None:
    assert await pair.found().read([("key", 7)]) == {("key", 7): 7}


async def test_an_id_that_the_source_does_not_know_any_more_is_named(pair: Pair) -> None:
    found = await pair.found().read([("value", 8)])
    assert found == {("value", 8): "schema id 8: the registry has no schema id 8"}


async def test_a_schema_that_the_destination_lacks_is_named_and_not_registered(pair: Pair) -> None:
    before = dict(pair.there.schemas)
    found = await pair.found().read([("value", 7)])
    assert found == {("value", 7): "schema id 7: the registry has no such schema in copied-value"}
    assert pair.there.schemas == before
    pair.there.add(41, ORDER, "copied-value")  # what was missing is looked up again
    ids = pair.found()
    assert await ids.read([("value", 7)]) == {("value", 7): 41}


async def test_a_registry_that_is_down_is_an_error(pair: Pair) -> None:
    pair.there.down = True
    with pytest.raises(RegistryUnavailable):
        await pair.found().read([("value", 7)])


async def test_names_of_a_hostile_registry_reach_no_terminal(pair: Pair) -> None:
    reference = {"name": "x", "subject": "\x1b]0;owned\x07", "version": 1}
    pair.here.add(9, ORDER, "t-value", references=[reference])
    (text,) = (await pair.found().read([("value", 9)])).values()
    assert isinstance(text, str)
    assert text.isprintable()


async def test_an_ended_flow_leaves_the_subject_to_producers(pair: Pair) -> None:
    copier = SchemaCopier(*pair.clients(), KEEP, ended=True)
    assert await SchemaIdMap(copier, "t", "copied").read([("value", 7)]) == {("value", 7): 7}
    assert pair.there.modes["copied-value"] == "READWRITE"
    assert pair.there.subjects["copied-value"] == {1: 7}

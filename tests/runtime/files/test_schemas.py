"""The schemas of a backup on a real file system: numbered, whole, and only added."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from runtime.contract.records.manifest import StoredSchemas
from runtime.contract.records.schemas import Reference, RegisteredSchema
from runtime.contract.spec.schemas import RegistrySpec, SchemaSync
from runtime.files.manifest import ManifestProblem, ManifestTaken
from runtime.files.schemas import SchemaFolder
from runtime.schemas.client import NotInRegistry, SchemaRegistry
from runtime.schemas.copier import SchemaCopier
from runtime.schemas.stored import BackedUpSchemas
from tests.fakes.registry import registry_server

ITEM = RegisteredSchema(subject="item", version=3, id=7, text='"long"')
ORDER = RegisteredSchema(
    subject="orders-value",
    version=1,
    id=9,
    text='{"type": "map", "values": "Item"}',
    references=(Reference("Item", "item", 3),),
)
FIRST = StoredSchemas(flow="f", number=1, versions=[ITEM], levels={"item": "FULL"})
SECOND = StoredSchemas(flow="f", number=2, versions=[ORDER])


@pytest.fixture
def folder(tmp_path: Path) -> SchemaFolder:
    found = SchemaFolder(str(tmp_path), "f")
    assert found.read() == []
    found.add(FIRST)
    found.add(SECOND)
    return found


def files(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "_repl/f/schemas").iterdir())


def test_schemas_are_read_as_they_were_added(folder: SchemaFolder) -> None:
    assert folder.read() == [FIRST, SECOND]
    with pytest.raises(ManifestTaken):
        folder.add(replace(SECOND, versions=[]))


def test_a_file_that_is_gone_edited_or_exchanged_is_a_problem(folder: SchemaFolder, tmp_path: Path) -> None:
    first, second = files(tmp_path)
    whole = first.read_bytes()
    first.unlink()
    with pytest.raises(ManifestProblem, match="is not file 1 of these schemas"):
        folder.read()
    first.write_bytes(whole.replace(b"item", b"jtem"))
    with pytest.raises(ManifestProblem, match="it was cut off or edited"):
        folder.read()
    first.write_bytes(second.read_bytes())
    with pytest.raises(ManifestProblem, match="is not file 1 of these schemas"):
        folder.read()


async def test_a_registry_gets_what_the_backup_holds_with_ids_and_references() -> None:
    stored = BackedUpSchemas("archive", [FIRST, SECOND])
    order = stored.every_version()["orders-value"][0]
    with registry_server() as there:
        registry = SchemaRegistry(RegistrySpec(url=there.url))
        copier = SchemaCopier(stored, registry, SchemaSync(sync=True), ended=True)
        await copier.copy_version("orders-value", order, "old.orders-value")
        registry.close()
        assert there.subjects == {"item": {3: 7}, "old.orders-value": {1: 9}}
        assert set(there.modes.values()) == {"READWRITE"}


async def test_what_a_backup_does_not_hold_is_not_there() -> None:
    stored = BackedUpSchemas("archive", [FIRST])
    for missing in (stored.schema(8), stored.version("item", 1), stored.versions("\x1b[31m")):
        with pytest.raises(NotInRegistry) as caught:
            await missing
        assert str(caught.value).isprintable()

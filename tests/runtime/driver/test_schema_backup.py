"""What a backup keeps of a schema registry, also of a hostile one: each version once, and none replaced."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runtime.contract.spec.files import FilesSpec
from runtime.contract.spec.schemas import RegistrySpec, SchemaSync
from runtime.driver.clusters import DriverClusters
from runtime.driver.duties.schema_backup import SchemaBackup
from runtime.files.schemas import SchemaFolder
from runtime.kafka.errors import Disconnected
from runtime.schemas.stored import BackedUpSchemas
from tests.fakes.registry import RegistryServer, registry_server
from tests.spark.job import flow_of

ITEM: dict[str, Any] = {"type": "record", "name": "Item", "fields": []}
ORDER: dict[str, Any] = {"type": "record", "name": "Order", "fields": []}


class Backup:
    def __init__(self, registry: RegistryServer, folder: Path) -> None:
        self.registry = registry
        self.folder = SchemaFolder(str(folder), "f")
        self._place = str(folder)

    async def run(self, *topics: str) -> None:
        """A round of a driver that has just started."""
        spec = flow_of("f", list(topics), destination="dc1", schemas=SchemaSync(sync=True))
        clusters = DriverClusters("job", {}, {}, {"dc1": RegistrySpec(url=self.registry.url)})
        files = FilesSpec(endpoint="archive", folder=self._place, format="raw")
        await SchemaBackup(spec, files, clusters).run(topics)
        clusters.schema_registry("dc1").close()

    @property
    def places(self) -> list[tuple[str, int]]:
        stored = BackedUpSchemas("", self.folder.read()).every_version()
        return [(subject, version.number) for subject, versions in stored.items() for version in versions]


@pytest.fixture
def backup(tmp_path: Path) -> Iterator[Backup]:
    with registry_server() as registry:
        registry.add(1, ITEM, "item")
        registry.add(2, ORDER, "t-value", references=[{"name": "Item", "subject": "item", "version": 1}])
        registry.add(3, ITEM, "other-value")
        yield Backup(registry, tmp_path)


async def test_subjects_of_the_topics_and_what_they_refer_to_are_stored_once(backup: Backup) -> None:
    backup.registry.levels["t-value"] = "FULL"
    await backup.run("t")
    assert backup.places == [("item", 1), ("t-value", 1)]
    (first,) = backup.folder.read()
    assert first.levels == {"t-value": "FULL"}
    await backup.run("t")
    assert len(backup.folder.read()) == 1
    backup.registry.add(5, {**ORDER, "doc": "new"}, "t-value", version=4)
    await backup.run("t")
    assert backup.places == [("item", 1), ("t-value", 1), ("t-value", 4)]
    assert len(backup.folder.read()) == 2


async def test_a_registry_that_is_down_stores_nothing(backup: Backup) -> None:
    backup.registry.down = True
    with pytest.raises(Disconnected, match="503"):
        await backup.run("t")
    assert backup.places == []


async def test_other_ids_at_each_answer_never_replace_what_is_stored_nor_add_files(backup: Backup) -> None:
    await backup.run("t")
    for number in (20, 21):
        backup.registry.schemas[number] = backup.registry.schemas[2]
        backup.registry.subjects["t-value"][1] = number
        with pytest.raises(Disconnected, match="is another schema than the one in the backup"):
            await backup.run("t")
    assert len(backup.folder.read()) == 1


@pytest.mark.parametrize("version", [0, 2**40])
async def test_what_could_not_be_read_again_is_not_written(backup: Backup, version: int) -> None:
    backup.registry.subjects["t-value"] = {version: 2}
    with pytest.raises(Disconnected):
        await backup.run("t")
    assert backup.folder.read() == []

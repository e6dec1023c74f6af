"""What a backup keeps of a schema registry, also of a hostile one: each version once, and none replaced."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from runtime.contract.records.manifest import StoredSchemas
from runtime.contract.records.schemas import RegisteredSchema
from runtime.contract.spec.files import FilesSpec
from runtime.contract.spec.schemas import RegistrySpec, SchemaSync, SubjectNames
from runtime.driver.clusters import DriverClusters
from runtime.driver.duties import schema_backup
from runtime.driver.duties.schema_backup import SchemaBackup
from runtime.driver.leadership import DriverFenced
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
        self.fenced = False

    async def ensure(self) -> None:
        """What the driver's leadership does before each write."""
        if self.fenced:
            raise DriverFenced("another driver has started")

    async def run(self, *topics: str) -> None:
        """A round of a driver that has just started."""
        with self.opened(*topics) as opened:
            await opened.run(topics)

    @contextmanager
    def opened(self, *topics: str, subjects: SubjectNames = "topic_name") -> Iterator[SchemaBackup]:
        sync = SchemaSync(sync=True, subjects=subjects)
        spec = flow_of("f", list(topics), destination="dc1", schemas=sync)
        clusters = DriverClusters("job", {}, {}, {"dc1": RegistrySpec(url=self.registry.url)})
        files = FilesSpec(endpoint="archive", folder=self._place, format="raw")
        yield SchemaBackup(spec, files, clusters, self.ensure)
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


async def test_a_change_of_the_compatibility_alone_is_stored_too(backup: Backup) -> None:
    stored = []
    for level in ("FULL", "FULL", "NONE", None):
        backup.registry.levels.pop("item", None)
        if level is not None:
            backup.registry.levels["item"] = level
        await backup.run("t")
        additions = backup.folder.read()
        stored.append((len(additions), BackedUpSchemas("", additions).levels.get("item")))
    assert stored == [(1, "FULL"), (1, "FULL"), (2, "NONE"), (3, "")]


async def test_compatibilities_are_read_in_turn_and_seldom(
    backup: Backup, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(150):
        backup.registry.add(10 + number, ITEM, f"t-N{number:03}")
    with backup.opened("t", subjects="topic_record_name") as opened:
        await opened.run(["t"])
        backup.registry.levels |= {f"t-N{number:03}": "FULL" for number in range(150)}
        backup.registry.asked.clear()
        await opened.run(["t"])
        assert not [path for path in backup.registry.asked if path.startswith("/config")]
        monkeypatch.setattr(schema_backup, "_LEVELS_EVERY_S", 0.0)
        opened.forget()
        stored = 0
        while stored < 150:
            await opened.run(["t"])
            known, stored = stored, len(BackedUpSchemas("", backup.folder.read()).levels)
            assert 0 < stored - known <= 100


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


@pytest.mark.parametrize("version", [0, 2**40, 10**30])
async def test_what_could_not_be_read_again_is_not_written(backup: Backup, version: int) -> None:
    backup.registry.subjects["t-value"] = {version: 2}
    with pytest.raises(Disconnected):
        await backup.run("t")
    assert backup.folder.read() == []


async def test_metadata_and_rules_of_a_data_contract_are_stored(backup: Backup) -> None:
    contract = {"metadata": {"properties": {"owner": "shop"}}, "ruleSet": {"domainRules": [{"name": "r"}]}}
    backup.registry.schemas[2] |= contract
    await backup.run("t")
    await backup.run("t")
    (addition,) = backup.folder.read()
    schema = await BackedUpSchemas("", [addition]).schema(2)
    assert {"metadata": schema.metadata, "ruleSet": schema.rules} == contract


async def test_references_to_no_version_are_not_written(backup: Backup) -> None:
    backup.registry.schemas[2]["references"][0]["version"] = 10**30
    with pytest.raises(Disconnected):
        await backup.run("t")
    assert backup.folder.read() == []


@pytest.mark.parametrize("lists", [True, False], ids=["a list of all", "each version by itself"])
async def test_soft_deleted_versions_are_stored_because_records_still_need_them(
    backup: Backup, lists: bool
) -> None:
    backup.registry.lists = lists
    backup.registry.add(5, {**ORDER, "doc": "new"}, "t-value")
    backup.registry.soft_deleted = {("item", 1), ("t-value", 1)}
    await backup.run("t")
    assert backup.places == [("item", 1), ("t-value", 1), ("t-value", 2)]


async def test_a_driver_that_is_fenced_writes_nothing(backup: Backup) -> None:
    backup.fenced = True
    with pytest.raises(DriverFenced):
        await backup.run("t")
    assert backup.folder.read() == []


async def test_an_id_is_the_schema_that_was_stored_with_it_also_after_its_version_was_stored_anew() -> None:
    texts = {7: '"long"', 9: '"string"'}
    held = BackedUpSchemas("")
    for at, (number, text) in enumerate(texts.items(), 1):
        version = RegisteredSchema(subject="t-value", version=1, id=number, text=text)
        held.add(StoredSchemas(flow="f", number=at, versions=[version]))
    assert {number: (await held.schema(number)).text for number in texts} == texts
    assert [await held.places(number) for number in texts] == [[], [("t-value", 1)]]

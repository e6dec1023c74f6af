"""`repl verify` and `repl salvage` of a flow that translates the ids of schemas, with strict registries."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from runtime.contract.spec.schemas import RegistrySpec, SchemaSync
from tests.commands import repl
from tests.fakes.registry import RegistryServer, framed, registry_server
from tests.runtime.audit.ended import end_flow
from tests.runtime.slot.world import Driver, Side, assigned, copy_through, flow_spec
from tests.topologies import Topology, declared

pytestmark = pytest.mark.integration
Fresh = Callable[[str], str]

ORDER: Mapping[str, Any] = {"type": "record", "name": "Order", "fields": [{"name": "a", "type": "Item"}]}
ITEM: Mapping[str, Any] = {"type": "record", "name": "Item", "fields": [{"name": "b", "type": "long"}]}


@dataclass
class Shop:
    """A flow whose topic is renamed; at the destination the ids 1 to 4 are other schemas."""

    sides: Mapping[str, Side]
    registries: Mapping[str, RegistryServer]
    topology: Topology
    flow: str
    topic: str
    renamed: str

    def __post_init__(self) -> None:
        for side, topic in (("dc1", self.topic), ("dc2", self.renamed)):
            self.sides[side].create(topic)
        for number in range(1, 5):
            other = {"type": "enum", "name": f"E{number}", "symbols": ["A"]}
            self.registries["dc2"].add(number, other, f"other-{number}")
        item = {"name": "Item", "subject": "item", "version": 1}
        self.registries["dc1"].add(1, ITEM, "item")
        self.registries["dc1"].add(2, ORDER, f"{self.topic}-value", references=[item])
        self.declare("active")
        specs = {name: RegistrySpec(url=registry.url) for name, registry in self.registries.items()}
        self.driver = Driver(self.sides, job=f"{self.flow}-job", registries=specs)

    def declare(self, state: str) -> None:
        schemas = {"sync": True, "ids": "translate"}
        rename = {self.topic: self.renamed}
        flow = declared(self.flow, self.topic, schemas=schemas, rename=rename, state=state, provenance="off")
        urls = {name: {"url": registry.url} for name, registry in self.registries.items()}
        self.topology.more = {"flows": [flow], "registries": urls}
        self.topology.write()

    def add_version(self, number: int) -> None:
        fields = [*ORDER["fields"], {"name": f"c{number}", "type": "long", "default": 0}]
        item = {"name": "Item", "subject": "item", "version": 1}
        schema = {**ORDER, "fields": fields}
        self.registries["dc1"].add(number, schema, f"{self.topic}-value", references=[item])

    def write(self, *numbers: int) -> None:
        """Each key is a long, as Kafka's serializer writes it: it begins with a zero byte."""
        rows = [
            {"key": struct.pack(">q", 2 << 24), "value": framed(number, b"%d" % at), "partition": 0}
            for at, number in enumerate(numbers)
        ]
        self.sides["dc1"].write(self.topic, rows)

    def copy(self) -> None:
        spec = flow_spec(self.flow, schemas=SchemaSync(sync=True, ids="translate"))
        copy_through(self.driver, spec, assigned(self.flow, self.topic, destination_topic=self.renamed))

    def run(self, command: str, *options: str, code: int = 0, **env: str) -> dict[str, Any]:
        path = ("--path", str(self.topology.file), "--json")
        done = repl(command, self.flow, *path, *options, env=env, timeout=180)
        assert done.returncode == code, (done.stdout, done.stderr)
        found: dict[str, Any] = json.loads(done.stdout) if done.stdout else {"error": done.stderr}
        return found

    def rehearse(self) -> dict[str, Any]:
        """What a rehearsal of the failover of dc1 says of the schemas."""
        options = ("--rehearse", "--path", str(self.topology.file), "--json")
        done = repl("failover", "dc1", *options, timeout=180)
        assert done.returncode == 0, (done.stdout, done.stderr)
        events = map(json.loads, done.stdout.splitlines())
        (found,) = (event for event in events if event["event"] == "schemas")
        return dict(found)

    def decoded(self, side: str) -> list[tuple[str, bytes]]:
        """The text of each record's schema, and the payload."""
        topic = self.topic if side == "dc1" else self.renamed
        registry = self.registries[side]
        values = [row.value or b"" for row in self.sides[side].read(topic)[0]]
        return [(registry.schemas[int.from_bytes(value[1:5])]["schema"], value[5:]) for value in values]


@pytest.fixture
def shop(sides: dict[str, Side], fresh: Fresh, tmp_path: Path) -> Iterator[Shop]:
    clusters = {name: {"bootstrap": side.bootstrap} for name, side in sides.items()}
    topology = Topology(fresh("shop"), tmp_path / "shop.yaml", clusters)
    with registry_server() as here, registry_server() as there:
        registries = {"dc1": here, "dc2": there}
        yield Shop(sides, registries, topology, fresh("flow"), fresh("orders"), fresh("copied"))


def test_copies_with_translated_ids_are_equal_and_those_of_another_schema_are_not(shop: Shop) -> None:
    shop.write(2, 2, 2)
    shop.copy()
    (partition,) = shop.run("verify")["partitions"]
    assert (partition["compared"], partition["differences"]) == (3, [])
    copies = shop.registries["dc2"]
    right = copies.subjects[f"{shop.renamed}-value"][1]

    copies.schemas[right + 1] = copies.schemas.pop(right)  # the copies have an id of no schema
    copies.subjects[f"{shop.renamed}-value"][1] = right + 1
    (partition,) = shop.run("verify", code=2)["partitions"]
    assert [
        (difference["kind"], difference["fields"], difference["why"])
        for difference in partition["differences"]
    ] == [("changed", ["value"], f"schema id of the value {right + 1} → {right}")] * 3

    del copies.subjects[f"{shop.renamed}-value"]
    (partition,) = shop.run("verify", code=2)["partitions"]
    assert (
        f"schema id 2: the registry has no such schema in {shop.renamed}-value"
        in (partition["differences"][0]["why"])
    )

    copies.down = True
    assert "its schema registry can't be read" in shop.run("verify", code=1)["error"]


def test_a_rehearsal_says_which_schemas_the_survivor_lacks(shop: Shop) -> None:
    shop.write(2, 2)
    shop.copy()
    here, there = shop.registries.values()
    text = repl("failover", "dc1", "--rehearse", "--path", str(shop.topology.file), timeout=180).stdout
    assert (
        f"  flow.{shop.flow}  dc2 has 1 schema of the last 2 records and all 1 version of the subjects"
        in text
    )
    rehearsed = shop.rehearse()
    assert (rehearsed["records"], rehearsed["schemas"], rehearsed["versions"]) == (2, 1, 1)
    assert (rehearsed["missing"], rehearsed["uncertain"], rehearsed["unread"]) == ([], [], "")

    shop.add_version(3)  # no record has it yet
    hostile = "\x1b]0;owned\x07"
    here.add(4, {**ITEM, "name": "Other"}, f"{shop.topic}-key{hostile}")  # a subject of no topic
    assert shop.rehearse()["missing"] == [f"{shop.topic}-value version 2 (id 3), as {shop.renamed}-value"]
    here.down = True
    rehearsed = shop.rehearse()
    assert (rehearsed["versions"], rehearsed["missing"]) == (None, [])
    assert "503" in rehearsed["source_unread"]

    right = there.subjects[f"{shop.renamed}-value"][1]
    schema = there.schemas.pop(right)
    ((first, _),) = shop.sides["dc2"].read(shop.renamed)
    place = f"schema id {right} in the value of {shop.renamed}-0:{first.offset}"
    assert shop.rehearse()["missing"] == [place]
    del there.subjects[f"{shop.renamed}-value"]
    rehearsed = shop.rehearse()
    assert rehearsed["uncertain"] == [place]
    here.down = False
    assert len(shop.rehearse()["missing"]) == 3
    there.schemas[right] = schema
    there.down = True
    assert "503" in shop.rehearse()["unread"]


@pytest.mark.spark
@pytest.mark.long
def test_salvaged_records_get_the_ids_of_the_destination_and_bring_their_schemas(
    shop: Shop, tmp_path: Path
) -> None:
    shop.write(2, 2)
    shop.copy()
    end_flow(shop.driver, shop.flow)
    shop.declare("failed_over")
    shop.add_version(3)
    shop.write(3, 2, 3)
    exported = tmp_path / "left.jsonl"
    shop.run("salvage", "--export", str(exported))
    lines = [json.loads(line) for line in exported.read_text().splitlines()]
    assert [line["schema_registry"] for line in lines] == ["dc1"] * 3

    shop.registries["dc2"].down = True
    problem = shop.run("salvage", "--replay", "--auto-approve", code=1)
    assert "can't be read" in json.dumps(problem)
    shop.registries["dc2"].down = False
    shop.registries["dc2"].modes[f"{shop.renamed}-value"] = "READONLY"
    problem = shop.run("salvage", "--replay", "--auto-approve", code=1)
    assert "schema id 3" in json.dumps(problem)
    assert len(shop.decoded("dc2")) == 2

    del shop.registries["dc2"].modes[f"{shop.renamed}-value"]
    assert shop.run("salvage", "--replay", "--auto-approve")["records"] == 3
    assert shop.decoded("dc2") == shop.decoded("dc1")
    (partition,) = shop.run("verify")["partitions"]
    assert (partition["compared"], partition["replayed"], partition["differences"]) == (2, 3, [])

"""A backup holds the schemas that its records need, and a restore registers them with their ids."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runtime.contract.records.job_status import PartitionState
from runtime.contract.spec.files import FilesSpec
from runtime.contract.spec.jobspec import JobExit
from runtime.contract.spec.schemas import RegistrySpec, SchemaSync
from runtime.lab.lab import Lab
from tests.commands import repl
from tests.fakes.registry import RegistryServer, framed, registry_server
from tests.records import create_topic, wait_for, write
from tests.runtime.slot.world import Side
from tests.spark.job import Running, flow_of, spec_of, start_job

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.long]
_STARTS_S = 180

ITEM = {"type": "record", "name": "Item", "fields": [{"name": "a", "type": "long"}]}
ORDER: dict[str, Any] = {"type": "record", "name": "Order", "fields": [{"name": "item", "type": "Item"}]}
MORE = {**ORDER, "fields": [*ORDER["fields"], {"name": "b", "type": "long", "default": 0}]}


def decoded(lab: Lab, topic: str, registry: RegistryServer) -> list[tuple[str, bytes]]:
    """The text of each record's schema at dc2, and the payload."""
    side = Side("dc2", lab.clusters["dc2"].bootstrap, lab.clusters["dc2"].client)
    values = [row.value or b"" for row in side.read(topic)[0]]
    return [(registry.schemas[int.from_bytes(value[1:5])]["schema"], value[5:]) for value in values]


def test_schemas_are_in_the_backup_before_their_records_and_come_back_with_their_ids(
    lab: Lab, fresh: Callable[[str], str], tmp_path: Path
) -> None:
    client = dict(lab.clusters["dc1"].client)
    topic, flow, folder = fresh("orders"), fresh("flow"), tmp_path / "archive"
    folder.mkdir()
    create_topic(client, topic, 1)
    with registry_server() as here, registry_server() as there:
        files = FilesSpec(endpoint="archive", folder=str(folder), format="raw", every_ms=300)
        spec = spec_of(
            lab,
            fresh("job"),
            [
                flow_of(
                    flow,
                    [topic],
                    destination="dc1",
                    files=files,
                    schemas=SchemaSync(sync=True),
                    checkpoints_every_ms=None,
                )
            ],
            destination="dc1",
            registries={"dc1": RegistrySpec(url=here.url)},
        )
        item = {"name": "Item", "subject": "item", "version": 1}
        here.add(7, ITEM, "item")
        here.add(9, ORDER, f"{topic}-value", references=[item])
        here.add(10, ITEM, "of-no-topic")
        here.levels[f"{topic}-value"] = "FULL"
        write(client, topic, [framed(9, b"1")])
        with start_job(spec, tmp_path) as job:
            wait_for(lambda: at_position(job, 1), _STARTS_S, about=job.tail)
            here.down = True
            here.add(12, MORE, f"{topic}-value", version=4, references=[item])
            write(client, topic, [framed(12, b"2")])
            job.wait_for(lambda status: "schema registry" in json.dumps(trouble(job)), _STARTS_S)
            assert at_position(job, 1)  # the record waits for its schema
            here.down = False
            wait_for(lambda: at_position(job, 2), _STARTS_S, about=job.tail)
            assert job.stop() == JobExit.STOPPED, job.tail()
        here.down = True  # the source and its registry are not needed any more
        restored(lab, topic, folder, there, fresh("restored"), tmp_path / "restored.yaml")


def at_position(job: Running, position: int) -> bool:
    partitions = job.partitions().values()
    return any(one.position == position for one in partitions)


def trouble(job: Running) -> list[str]:
    return [one.why for one in job.partitions().values() if one.state is not PartitionState.CAUGHT_UP]


def restored(lab: Lab, topic: str, folder: Path, there: RegistryServer, name: str, topology: Path) -> None:
    """Restores the topic into dc2, whose registry has first no address, then another schema, then none."""
    body: dict[str, Any] = {
        "apiVersion": "repl/v1",
        "name": name,
        "clusters": {"dc2": {"bootstrap": lab.clusters["dc2"].bootstrap}},
        "topics": [{"name": name, "cluster": "dc2", "partitions": 1}],
        "endpoints": {"archive": {"file": str(folder), "format": "raw"}},
    }
    topology.write_text(json.dumps(body))
    into = f"old.{topic}"
    arguments = ("archive", str(topology), "--to", "dc2", "--prefix", "old.")
    without = repl("restore", *arguments, timeout=120)  # not approved: a plan only
    assert "has no schema registry" in without.stdout + without.stderr

    topology.write_text(json.dumps(body | {"registries": {"dc2": {"url": there.url}}}))
    there.add(12, {"type": "enum", "name": "Other", "symbols": ["A"]}, "other")
    refused = repl("restore", *arguments, "--auto-approve", timeout=120)
    assert refused.returncode == 1
    assert f"schema id 12 is {topic}-value version 4" in refused.stdout + refused.stderr
    there.schemas.clear()
    there.subjects.clear()

    done = repl("restore", *arguments, "--auto-approve", timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"schema.dc2.{into}-value" in done.stdout
    assert there.subjects == {"item": {1: 7}, f"{into}-value": {1: 9, 4: 12}}
    assert there.levels[f"{into}-value"] == "FULL"
    assert set(there.modes.values()) == {"READWRITE"}
    assert decoded(lab, into, there) == [(json.dumps(ORDER), b"1"), (json.dumps(MORE), b"2")]
    again = repl("restore", *arguments, "--auto-approve", timeout=300)
    assert again.returncode == 0, again.stdout + again.stderr
    translated(lab, topic, there, arguments[:-1])


def translated(lab: Lab, topic: str, there: RegistryServer, arguments: tuple[str, ...]) -> None:
    """Restores the topic again beside the first copy, into a registry that has other schemas with its ids."""
    for numbered in (there.schemas, there.subjects, there.modes, there.levels):
        numbered.clear()
    there.modes[None], there.levels[None] = "READWRITE", "BACKWARD"
    for number in range(1, 13):
        there.add(number, {"type": "enum", "name": f"N{number}", "symbols": ["A"]}, "other")
    ids = ("new.", "--auto-approve", "--schema-ids", "translate")
    for _ in range(2):  # the second time there is nothing to register
        done = repl("restore", *arguments, *ids, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        assert there.subjects == {
            "other": {number: number for number in range(1, 13)},
            "item": {1: 13},
            f"new.{topic}-value": {1: 14, 2: 15},
        }
        assert decoded(lab, f"new.{topic}", there) == [(json.dumps(ORDER), b"1"), (json.dumps(MORE), b"2")]

"""Steps of failing_over/restore.feature: a lab with one cluster that is backed up, and an empty one."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_bdd import given, parsers, scenarios, then, when

from runtime.files.manifest import ManifestFolder
from runtime.files.snapshots import SnapshotFolder
from runtime.lab.lab import Lab
from tests.bdd.consuming import consumer_of, eat
from tests.bdd.running import SMALL, Town, eventually, fresh_names
from tests.labs import spec
from tests.processes import kill_together
from tests.records import coordinators_ready
from tests.topologies import at

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.long]

scenarios("failing_over/restore.feature")
RETENTION_MS = "864000000"


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    lab = Lab(tmp_path / "lab")
    made = None
    try:
        lab.up([spec("dc1"), spec("dc2")])
        for cluster in lab.clusters.values():
            coordinators_ready(cluster.client)
        name = fresh_names()
        archive = tmp_path / "archive"
        archive.mkdir()
        topology = at(lab, name("town"), tmp_path, ("dc1", "dc2"))
        flow = {"name": name("to-archive"), "from": "dc1", "to": "archive", "every": "1s"}
        topology.more |= {
            "endpoints": {"archive": {"file": str(archive), "format": "raw", "snapshots": "1s"}},
            "flows": [
                flow | {"topics": {"include": [name("orders")]}, "job": name("into-archive")},
            ],
            "jobs": {name("into-archive"): SMALL},
        }
        topology.topic(name("orders"), "dc1", partitions=2, config={"retention.ms": RETENTION_MS})
        made = Town(lab, topology, tmp_path / "home", name)
        yield made
    finally:
        if made is not None:
            kill_together(made.processes("archive").values())
        lab.down(purge=True)


def archive_of(town: Town) -> str:
    return str(town.topology.file.parent / "archive")


def restore(town: Town, cluster: str, *options: str) -> None:
    town.run("restore", "archive", "--to", cluster, "--path", str(town.topology.file), *options)


def plan_of(town: Town) -> Path:
    return town.topology.file.with_name("restore.plan")


# Given


@given("a job backs up orders of dc1 into the archive")
def _(town: Town) -> None:
    town.apply()


@given(
    parsers.parse("{count:d} records are written to orders at dc1, and billing has read {read:d} of them"),
    target_fixture="left",
)
def _(town: Town, count: int, read: int) -> list[bytes]:
    """What billing has not read."""
    town.write("orders", "dc1", count)
    billing = consumer_of(town, "billing", "dc1")
    try:
        known = eat(billing, read)
    finally:
        billing.close()
    return sorted(set(town.written["orders", "dc1"]) - set(known))


@given(parsers.parse("the archive holds {count:d} records, and that billing has read {read:d}"))
def _(town: Town, count: int, read: int) -> None:
    flow, folder = town.name("to-archive"), archive_of(town)

    def held() -> bool:
        positions = ManifestFolder(folder, flow).read().positions
        snapshots = SnapshotFolder(folder, flow)
        newest = snapshots.read(snapshots.times()[-1]).offsets if snapshots.times() else []
        read_by = sum(one.offset for one in newest if one.group == town.name("billing"))
        return sum(one.records for one in positions.values()) == count and read_by == read

    eventually(held, about="what the archive holds")


# When


@when("the engineer plans the restore of the archive into dc2")
def _(town: Town) -> None:
    restore(town, "dc2", "--out", str(plan_of(town)))


@when("the engineer applies the saved plan")
def _(town: Town) -> None:
    town.run("apply", str(plan_of(town)))


@when(parsers.re(r"the engineer restores the archive into (?P<cluster>dc\d)( again)?$"))
def _(town: Town, cluster: str) -> None:
    restore(town, cluster, "--auto-approve")


# Then


@then("dc2 has no topic orders")
def _(town: Town) -> None:
    assert town.partitions("orders", "dc2") == 0


@then("orders at dc2 holds every record of dc1 once and in order")
def _(town: Town) -> None:
    """The producer wrote its numbers in turn to two partitions."""
    written = town.written["orders", "dc1"]
    wanted = [[one for one in written if int(one.split(b"-")[1]) % 2 == number] for number in range(2)]
    assert town.values("orders", "dc2") == wanted


@then("orders at dc2 keeps its records as long as at dc1")
def _(town: Town) -> None:
    assert town.config("orders", "dc2", "retention.ms") == RETENTION_MS
    assert town.config("orders", "dc2", "cleanup.policy") == "delete"


@then(parsers.parse("billing reads at dc2 exactly the {count:d} records that it had not read"))
def _(town: Town, count: int, left: list[bytes]) -> None:
    assert len(left) == count
    billing = consumer_of(town, "billing", "dc2")
    try:
        assert sorted(eat(billing, count)) == left
    finally:
        billing.close()

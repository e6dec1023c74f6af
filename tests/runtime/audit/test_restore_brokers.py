"""The comparison at the end of a restore, on real brokers: what must be found, whoever wrote it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from runtime.lab.lab import Lab
from runtime.replay.task import copy_partitions
from tests.records import open_transaction
from tests.runtime.slot.world import Side
from tests.spark.backups import BackupWriter, restoring

pytestmark = pytest.mark.integration
PARTITIONS = 2


def restored(folder: Path, side: Side, topic: str, into: str) -> list[tuple[int, str]]:
    """Restores a topic, and returns the records and the problem of each partition."""
    request = restoring(folder, topic, into, side.name, side.spec())
    return [(part.records, part.unread) for part in asyncio.run(copy_partitions(request))]


def test_a_record_that_others_wrote_behind_the_restored_ones_is_found(
    lab: Lab, sides: Mapping[str, Side], fresh: Callable[[str], str], tmp_path: Path
) -> None:
    """Also where nothing was restored into a partition. What is not committed is no record."""
    topic, into, side = fresh("orders"), fresh("restored"), sides["dc2"]
    for there, name in ((sides["dc1"], topic), (side, into)):
        there.create(name, PARTITIONS)
    open_transaction(sides["dc1"].client, topic, fresh("aborts"), 0, 1).abort_transaction(60)
    sides["dc1"].write(topic, [{"value": b"%d" % number, "partition": 0} for number in range(3)])
    sides["dc1"].ends(topic, PARTITIONS)  # the transaction has ended everywhere
    BackupWriter(lab.clusters["dc1"], tmp_path).round(topic, snapshot=False)
    equal = [(3, ""), (0, "")]
    assert restored(tmp_path, side, topic, into) == equal

    others = open_transaction(side.client, into, fresh("others"), 0, 1)
    assert restored(tmp_path, side, topic, into) == equal
    others.abort_transaction(60)
    assert restored(tmp_path, side, topic, into) == equal

    ends = [end for _, end in side.ends(into, PARTITIONS)]
    side.write(into, [{"value": b"foreign", "partition": partition} for partition in range(PARTITIONS)])
    assert [problem for _, problem in restored(tmp_path, side, topic, into)] == [
        f"{into}-{partition} holds a record at {end} that the backup does not hold"
        for partition, end in enumerate(ends)
    ]

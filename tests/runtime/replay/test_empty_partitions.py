"""A partition without records is restored too: groups may have committed offsets there."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from runtime.contract.records.manifest import BackupState
from runtime.contract.spec import naming
from runtime.contract.spec.cluster import ClusterSpec
from runtime.kafka.cluster import KafkaCluster
from runtime.ledger.offset_maps import offset_maps_at
from runtime.replay.request import RestorePartition, RestoreRequest
from runtime.replay.restore import PartitionRestore
from runtime.replay.restore_target import translated
from tests.fakes.internal_topics import TransactionalTopics


async def test_an_empty_partition_is_in_the_offset_maps(tmp_path: Path) -> None:
    """So the offset 0 that a consumer has committed there is translated. A second run commits nothing."""
    world = TransactionalTopics({naming.LEDGER: [], naming.OFFSET_MAP: [], "orders": []})
    cluster = cast(KafkaCluster, world)
    part = RestorePartition("backup", "orders", 0, "orders", 1 << 20, topic_id="0f" * 16, end=0)
    state = BackupState(folder=str(tmp_path), flow="backup", commit=1, digest="")
    request = RestoreRequest(backup=state, name="dc2", cluster=ClusterSpec(bootstrap=""), parts=[part])

    await PartitionRestore(request, part, cluster).run(5.0)
    opened = await offset_maps_at(cluster, fresh=True)
    assert opened is not None
    await opened.decided(part.key.flow)
    restored = opened.get(part.key)
    assert restored is not None
    assert translated(restored, 0) == 0

    await PartitionRestore(request, part, cluster).run(5.0)
    assert world.steps.count("commit") == 1

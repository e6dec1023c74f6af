"""Backups that are made without a job: its tasks, manifest and snapshots, in the process of the test."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from runtime.batch.spec import MAX_UNPACKED
from runtime.contract.client.settings import wire_settings
from runtime.contract.records.manifest import BackupState, Commit, FilePosition, ManifestOwner, Snapshot
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.files import CompactionSpec, FilesSpec
from runtime.contract.spec.jobspec import FlowSpec
from runtime.contract.spec.naming import TopicPartition as At
from runtime.driver.clusters import DriverClusters
from runtime.driver.duties.compaction import CompactionDuty
from runtime.driver.duties.snapshots import SnapshotDuty
from runtime.files.backup import read_backup
from runtime.files.export import EXPORT, ExportPartition, ExportTicket, export
from runtime.files.manifest import ManifestFolder, ManifestState
from runtime.files.snapshots import SnapshotFolder
from runtime.files.tasks import encode
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.protocol.fetch import Isolation
from runtime.kafka.protocol.offsets import EARLIEST, LATEST
from runtime.kafka.queries import offsets_of
from runtime.lab.cluster import LabKafkaCluster
from runtime.replay.request import RestorePartition, RestoreRequest
from tests.runtime.files.lake import in_this_process
from tests.spark.job import flow_of

FLOW = "to-archive"


def restoring(
    folder: Path,
    topic: str,
    into: str,
    name: str,
    cluster: ClusterSpec,
    *,
    max_message_bytes: int = 1_048_588,
) -> RestoreRequest:
    """A restore of all of a topic's backup into a topic of this cluster, as `repl restore` asks for it."""
    backup = read_backup(str(folder), FLOW)
    lineage = backup.topics()[topic]
    state = BackupState(folder=str(folder), flow=FLOW, commit=backup.commit, digest=backup.digest)
    parts = [
        RestorePartition(
            FLOW,
            topic,
            number,
            into,
            max_message_bytes,
            topic_id=lineage.topic_id,
            end=position.position,
            files=lineage.files.get(number, []),
        )
        for number, position in sorted(lineage.positions.items())
    ]
    return RestoreRequest(backup=state, name=name, cluster=cluster, parts=parts)


class BackupWriter:
    """Backs topics of a cluster up into a folder, a round at a time, as a flow into raw files does."""

    def __init__(self, cluster: LabKafkaCluster, folder: Path, flow: str = FLOW, size: int = 1 << 20) -> None:
        self.manifest = ManifestFolder(str(folder), flow)
        self._cluster = cluster
        login = {key: str(value) for key, value in cluster.client.items() if key != "bootstrap.servers"}
        self._login = login
        self._spec = ClusterSpec(bootstrap=cluster.bootstrap, client={**login})
        self._files = FilesSpec(
            endpoint="archive", folder=str(folder), format="raw", size_bytes=size, snapshots_ms=100
        )
        self._flow = flow
        self._state = ManifestState()

    def round(self, *topics: str, at_ms: int | None = None, snapshot: bool = True) -> Commit:
        """Takes a snapshot, and copies what the topics hold now."""
        if snapshot:
            asyncio.run(self._snapshot(topics))
        known = asyncio.run(self._partitions(topics))
        ticket = ExportTicket(
            flow=self._flow,
            generation=1,
            cluster_name="dc1",
            cluster=self._spec,
            client_id="tests",
            files=self._files,
            partitions=[one for one in known if one.position.position < one.end],
            round_s=600.0,
            unpacked_bytes=MAX_UNPACKED,
        )
        (result,) = EXPORT.results(list(export([encode(ticket)])))
        assert not result.error, result.error
        assert not [one.problem for one in result.done if one.problem is not None]
        moved = {one.position.key: one.position for one in (*known, *result.done)}
        last = self._state.last
        commit = Commit(
            number=last.number + 1 if last is not None else 1,
            flow=self._flow,
            owner=ManifestOwner(topology="tests", job="archive", cluster_id=self._cluster.cluster_id),
            generation=1,
            at_ms=at_ms if at_ms is not None else int(time.time() * 1000),
            format="raw",
            positions=list(moved.values()),
            files=[file for one in result.done for file in one.files],
        )
        self.manifest.add(self._state, commit)
        self.manifest.publish(commit.files)
        return commit

    def merge(self) -> None:
        """Merges its small files, as a job does, and removes those that were replaced."""

        last = self._state.last
        assert last is not None
        files = replace(self._files, compact=CompactionSpec(below_bytes=self._files.size_bytes))
        duty = CompactionDuty(self._flow, files, self.manifest)
        merged = asyncio.run(duty.stage(1, 2, in_this_process))
        base = replace(
            last, number=last.number + 1, positions=[], files=[], replaced=[], small=None, complete=False
        )
        asyncio.run(duty.commit(self._state, base, merged))
        self.manifest.remove_replaced(0)

    def dated(self, at_ms: int) -> None:
        """Gives the newest snapshot another time."""
        folder = SnapshotFolder(self._files.folder, self._flow)
        newest: Snapshot = folder.read(folder.times()[-1])
        for path in (Path(self._files.folder) / "_repl" / self._flow / "snapshots").iterdir():
            path.unlink()
        folder.add(replace(newest, at_ms=at_ms))

    async def _partitions(self, topics: Sequence[str]) -> list[ExportPartition]:
        wire = wire_settings(self._cluster.bootstrap, self._login)
        async with await KafkaCluster.open(wire) as cluster:
            known = await cluster.topics(topics, fresh=True)
            wanted = [At(name, number) for name in topics for number in known[name].partitions]
            starts = await offsets_of(cluster, dict.fromkeys(wanted, EARLIEST))
            ends = await offsets_of(cluster, dict.fromkeys(wanted, LATEST), Isolation.READ_COMMITTED)
        found = []
        for at in wanted:
            position = self._state.positions.get((at.topic, at.partition))
            topic_id = known[at.topic].id.hex()
            if position is None or position.topic_id != topic_id:
                position = FilePosition(
                    topic=at.topic, topic_id=topic_id, partition=at.partition, position=starts[at]
                )
            found.append(ExportPartition(position, ends[at]))
        return found

    async def _snapshot(self, topics: Sequence[str]) -> None:
        spec: FlowSpec = flow_of(self._flow, list(topics), destination="dc1", files=self._files)
        clusters = DriverClusters("tests", {"dc1": self._spec}, {})
        try:
            source = await clusters.cluster("dc1")
            duty = SnapshotDuty(spec, self._files, clusters, frozenset())
            await duty.run(source, 1, lambda names: {name for name in names if name in topics})
            assert duty.note == ""
        finally:
            await clusters.close()

"""How fast a task writes a topic to files and restores it, and what it costs: one process, without Spark.

python -m tests.bench.bench_files [--megabytes 1000] [--rounds 3] [--only restore]

On a lab of its own: dc1 is filled by librdkafka and written in each format, synced to disk as in a job, and
into a bucket (`s3`) of a server that holds it in memory, or of the one that REPL_TEST_S3 names. Then a backup
is restored into dc1 under another name: written in transactions and compared record by record, and once more
only compared. MB are those of the records' values, before compression. CPU is this process's and, beside it,
the broker's. Rows that end in `ms` reach the broker through a proxy that holds its answers back for so long.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import uuid
from pathlib import Path
from typing import get_args

import uvloop
from confluent_kafka.admin import AdminClient
from msgspec.structs import replace

from runtime.batch.spec import MAX_UNPACKED
from runtime.contract.client.settings import wire_settings
from runtime.contract.records.manifest import FilePosition
from runtime.contract.spec import files, naming
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.files import FilesSpec
from runtime.contract.spec.naming import TopicPartition
from runtime.contract.spec.topic_settings import at_destination
from runtime.files.export import EXPORT, ExportPartition, ExportTicket, export
from runtime.files.tasks import encode
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.protocol.offsets import LATEST
from runtime.kafka.queries import offsets_of
from runtime.lab.cluster import LabClusterSpec, LabKafkaCluster, Listener
from runtime.replay.task import copy_partitions
from tests.bench.bench_wire import PARTITIONS, Load, fill, measured
from tests.bench.lab import Brokers, bench_lab
from tests.ports import free_port
from tests.records import create_topic
from tests.s3 import ADMIN, s3_server
from tests.spark.backups import BackupWriter, restoring
from tests.toxiproxy import proxied, toxiproxy

LOADS = (Load("1 KB, lz4", 1024, "lz4", 1.0), Load("100 B, lz4", 100, "lz4", 0.2))

LISTENER = "LINK"
DELAY_MS = 5


def write_once(ticket: ExportTicket, load: Load, brokers: Brokers) -> None:
    """Writes everything into an empty folder, and prints what it took."""
    folder = Path(ticket.files.folder)
    folder.mkdir()
    try:
        export_once(ticket, load, brokers, ticket.files.format)
    finally:
        shutil.rmtree(folder)


def export_once(ticket: ExportTicket, load: Load, brokers: Brokers, name: str) -> None:
    """Stages everything, and prints what it took."""
    with measured(brokers) as row:
        (result,) = EXPORT.results(list(export([encode(ticket)])))
        assert not result.error, result.error
        assert [one.problem for one in result.done] == [None] * PARTITIONS
        records = sum(one.position.records for one in result.done)
        line = row(f"{name:<8} {load.name}", records, records * load.value_bytes)
    written = sum(file.size for one in result.done for file in one.files)
    print(f"{line}   {written / 1e6:.0f} MB in files", flush=True)


def upload_once(ticket: ExportTicket, load: Load, brokers: Brokers, home: Path) -> None:
    """The same into an empty bucket of a server on this machine, whose CPU is not counted."""
    with s3_server(home) as server:
        bucket = server.create_bucket(f"lake-{uuid.uuid4().hex}")
        stored = replace(ticket.files, folder=f"s3a://{bucket}/lake", client=server.settings)
        export_once(replace(ticket, files=stored), load, brokers, f"s3 {stored.format}")


def restore_once(
    dc1: LabKafkaCluster,
    folder: Path,
    load: Load,
    topic: str,
    into: str,
    brokers: Brokers,
    through: str | None = None,
) -> None:
    """Restores a backup into a new topic, and prints what it took; then only compares it.

    `through` is the address of a proxy to the broker.
    """
    create_topic(dc1.client, into, PARTITIONS)
    make_ledger(dc1)
    cluster = ClusterSpec(bootstrap=through or dc1.bootstrap)
    request = restoring(folder, topic, into, "dc1", cluster)
    away = f" {DELAY_MS} ms" if through else ""
    for what in ("restore", "compare"):
        with measured(brokers) as row:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                done = runner.run(copy_partitions(request))
            assert [part.unread for part in done] == [""] * PARTITIONS, done
            records = sum(one.records for one in done)
            print(row(f"{what:<8} {load.name}{away}", records, records * load.value_bytes), flush=True)


def restore_from_afar(
    dc1: LabKafkaCluster, folder: Path, load: Load, topic: str, into: str, brokers: Brokers
) -> None:
    """Restores through a proxy that delays the broker's answers."""
    binary = toxiproxy()
    if binary is None:
        print("restore through a proxy: left out, Go is missing to build toxiproxy", flush=True)
        return
    node, told = next(iter(dc1.spec.listeners[0].advertised.items()))
    with proxied(binary, {told: dc1.listener(LISTENER)[node]}) as proxies:
        proxies.delay(DELAY_MS, 0)
        restore_once(dc1, folder, load, topic, into, brokers, through=told)


def make_ledger(dc1: LabKafkaCluster) -> None:
    """Creates the internal topics that a restore writes to."""
    topics = [one for one in at_destination() if one.name in (naming.LEDGER, naming.OFFSET_MAP)]
    known = AdminClient(dict(dc1.client)).list_topics(timeout=30).topics
    for one in topics:
        if one.name not in known:
            create_topic(dc1.client, one.name, one.partitions, config=one.config)


async def partitions_of(bootstrap: str, topic: str) -> list[ExportPartition]:
    """Returns all partitions, from their first to their last record."""
    async with await KafkaCluster.open(wire_settings(bootstrap, {})) as cluster:
        known = (await cluster.topics([topic]))[topic]
        wanted = [TopicPartition(topic, number) for number in known.partitions]
        ends = await offsets_of(cluster, dict.fromkeys(wanted, LATEST))
    return [
        ExportPartition(
            FilePosition(topic=topic, topic_id=known.id.hex(), partition=at.partition, position=0), end
        )
        for at, end in ends.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["restore"], help="leave out the rows of the formats")
    options = parser.parse_args()
    os.environ.update(ADMIN)
    link = Listener(LISTENER, {1: f"127.0.0.1:{free_port()}"})
    with bench_lab(LabClusterSpec("dc1", heap="768m", listeners=(link,))) as (lab, home):
        brokers = Brokers(lab)
        dc1 = lab.clusters["dc1"]
        for load in LOADS:
            topic = f"load-{load.value_bytes}"
            create_topic(dc1.client, topic, PARTITIONS)
            fill(dict(dc1.client), topic, load, options.megabytes)
            partitions = asyncio.run(partitions_of(dc1.bootstrap, topic))
            for form in get_args(files.Format) if options.only is None else ():
                ticket = ExportTicket(
                    flow="bench",
                    generation=1,
                    cluster_name="dc1",
                    cluster=ClusterSpec(bootstrap=dc1.bootstrap),
                    client_id="bench",
                    files=FilesSpec(endpoint="lake", folder=f"{home}/lake", format=form),
                    partitions=partitions,
                    round_s=600.0,
                    unpacked_bytes=MAX_UNPACKED,
                )
                for _ in range(options.rounds):
                    write_once(ticket, load, brokers)
                    if form != "json":
                        upload_once(ticket, load, brokers, home)
            archive = home / f"archive-{load.value_bytes}"
            archive.mkdir()
            BackupWriter(dc1, archive, size=128 << 20).round(topic)
            for number in range(options.rounds):
                restore_once(dc1, archive, load, topic, f"{topic}-{number}", brokers)
                far = f"{topic}-{number}-far"
                restore_from_afar(dc1, archive, load, topic, far, brokers)
            shutil.rmtree(archive)


if __name__ == "__main__":
    main()

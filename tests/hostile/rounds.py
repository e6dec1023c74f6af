"""A round: one way of copying, some blows, and a comparison record by record."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from runtime.contract.spec.cluster import ClusterSpec
from runtime.lab.cluster import LabClusterSpec, Listener
from runtime.lab.lab import Lab
from tests import checker
from tests.chaos.copiers import Kept, SparkCopier, sides_of
from tests.chaos.storm import prepare
from tests.checker.reader import Log, Seen
from tests.checker.shapes import digest
from tests.hostile.copies import KeptSlot, RepeatedTask, loading, replaying, restoring
from tests.hostile.faults import Chooser
from tests.hostile.proxy import Fence, Proxy
from tests.labs import JVM, WITH_PARENT
from tests.ports import free_port
from tests.records import wait_for
from tests.runtime.audit.ended import end_flow, leave
from tests.runtime.slot.world import FAST, Driver, Side, assigned, copy_through, flow_spec
from tests.spark.job import flow_of, spec_of

KINDS = ("slot", "file", "replay", "restore")  # all but `spark`
_BLOWS_S = 60.0  # a round goes on without the blows that dice did not deal by then
_PATIENCE_S = 300.0


class Stream(NamedTuple):
    """Where rounds run one after the other. `through` is the destination as the copies know it."""

    number: int
    lab: Lab
    sides: Mapping[str, Side]
    proxy: Proxy
    folder: Path

    @property
    def through(self) -> ClusterSpec:
        return ClusterSpec(bootstrap=self.proxy.bootstrap)


@dataclass(slots=True)
class Outcome:
    """What a round did, and what the checker found."""

    topic: str
    kind: str
    reports: list[checker.Report]
    starts: int = 0
    ends: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def exact(self) -> bool:
        return all(report.exact for report in self.reports)

    def __str__(self) -> str:
        lines = "; ".join(map(str, self.reports))
        return f"{self.topic} ({self.kind}): {self.starts} starts, {self.seconds:.0f} s: {lines}"


def cluster_specs(streams: int, brokers: int) -> list[LabClusterSpec]:
    """The source, and the destination with a listener for the proxy of each stream."""
    listeners = tuple(
        Listener(f"HOSTILE{number}", {node: f"127.0.0.1:{free_port()}" for node in range(1, brokers + 1)})
        for number in range(streams)
    )
    return [
        LabClusterSpec("dc1", jvm=JVM, prefix=WITH_PARENT),
        LabClusterSpec("dc2", brokers=brokers, jvm=JVM, prefix=WITH_PARENT, listeners=listeners),
    ]


def routes_of(lab: Lab) -> list[Mapping[str, str]]:
    """The brokers of the destination by the addresses of each stream's proxy."""
    cluster = lab.clusters["dc2"]
    return [
        {told: cluster.listener(one.name)[node] for node, told in one.advertised.items()}
        for one in cluster.spec.listeners
    ]


def streams_of(lab: Lab, proxies: list[Proxy], folder: Path) -> list[Stream]:
    sides = sides_of({name: one.bootstrap for name, one in lab.clusters.items()})
    sides["dc2"].create_internal()
    return [Stream(number, lab, sides, proxy, folder) for number, proxy in enumerate(proxies)]


def round_of(kind: str, stream: Stream, topic: str, dice: random.Random, chooser: Chooser) -> Outcome:
    """Runs one round, and deletes its topic where the copy is exact."""
    began = time.monotonic()
    rounds = {"slot": slot_round, "file": file_round, "replay": replay_round, "restore": restore_round}
    try:
        outcome = rounds[kind](stream, topic, dice, chooser)
    finally:
        stream.proxy.calm()
    outcome.seconds = time.monotonic() - began
    if outcome.exact:
        for side in stream.sides.values():
            side.delete(topic)
    return outcome


def slot_round(
    stream: Stream,
    topic: str,
    dice: random.Random,
    chooser: Chooser,
    *,
    partitions: int | None = None,
    lanes: int | None = None,
    spares: int | None = None,
) -> Outcome:
    """A slot copies one partition or many, through one lane or several, while records are written."""
    partitions = partitions or dice.choice([1, 1, 4, 8])
    lanes = lanes or dice.choice([1, 2, 4])
    spares = spares or dice.choice([1, 2, 2])
    settings = replace(FAST, lanes=lanes, spare_lanes=spares, transaction_ms=500)
    sides = stream.sides
    for side in sides.values():
        side.create(topic, partitions, **_config())
    driver = Driver(sides, job=topic, settings=settings)
    flow = flow_spec(topic, provenance=dice.choice(["off", "batch"]))
    spec = replace(driver.spec(), cluster=stream.through)
    parts = assigned(topic, topic, partitions, max_message_bytes=8_000_000)
    with KeptSlot(driver, spec, flow, parts, dice) as kept:
        written = _write(stream, topic, dice, chooser, kept.fence)
        here, there = (dict(sides[name].client) for name in ("dc1", "dc2"))
        report = checker.compare(here, there, topic, written=written, patience=_PATIENCE_S)
        if kept.outlived:
            kept.await_ended(partial(_write_more, here, topic, partitions, dice))
            report = checker.compare(here, there, topic, patience=_PATIENCE_S)
    kind = f"slot, {partitions} partitions, {lanes} lanes"
    return Outcome(topic, kind, [report], len(kept.attempts), [one.how for one in kept.attempts])


def _write_more(here: dict[str, str], topic: str, partitions: int, dice: random.Random) -> None:
    more = checker.Spec(records=30 * partitions, seed=dice.randrange(10**6), producers=3, large_every=0)
    checker.write(here, topic, more)


def _write(
    stream: Stream, topic: str, dice: random.Random, chooser: Chooser, fence: Fence
) -> checker.Written:
    """Writes records while blows fall, and a few more."""
    here = dict(stream.sides["dc1"].client)
    spec = checker.Spec(
        records=10**9,
        rate=dice.choice([30.0, 300.0, 300.0]),
        seed=dice.randrange(10**6),
        producers=4,
        large_every=dice.choice([0, 200]),
    )
    with checker.writing(here, topic, spec) as writer:
        writer.wait_for(20)
        stream.proxy.begin(chooser, fence)
        _await_blows(chooser)
        stream.proxy.calm()
        writer.wait_for(writer.so_far + 50)
    return writer.written


def _await_blows(chooser: Chooser) -> None:
    until = time.monotonic() + _BLOWS_S
    while not chooser.spent and time.monotonic() < until:
        time.sleep(0.1)


def _config() -> dict[str, str]:
    return {key.replace(".", "_"): value for key, value in checker.TOPIC_CONFIG.items()}


def _run(stream: Stream, task: RepeatedTask, chooser: Chooser) -> None:
    stream.proxy.begin(chooser, task.fence)
    try:
        task.run(_PATIENCE_S)
    finally:
        stream.proxy.calm()


def _written(
    stream: Stream, topic: str, dice: random.Random, records: int, first: int = 0
) -> checker.Written:
    spec = checker.Spec(records=records, seed=dice.randrange(10**6), producers=4, large_every=0, first=first)
    return checker.write(dict(stream.sides["dc1"].client), topic, spec)


def restore_round(stream: Stream, topic: str, dice: random.Random, chooser: Chooser) -> Outcome:
    """A topic is backed up into raw files, and restored into the other cluster."""
    partitions = dice.choice([1, 3])
    for side in stream.sides.values():
        side.create(topic, partitions, **_config())
    written = _written(stream, topic, dice, 600)
    folder = stream.folder / topic
    task = restoring(stream.lab.clusters["dc1"], stream.through, topic, topic, folder)
    _run(stream, task, chooser)
    here, there = (dict(stream.sides[name].client) for name in ("dc1", "dc2"))
    report = checker.compare(here, there, topic, written=written, patience=_PATIENCE_S)
    return Outcome(
        topic, f"restore, {partitions} partitions", [report], 1 + len(task.attempts), task.attempts
    )


def replay_round(stream: Stream, topic: str, dice: random.Random, chooser: Chooser) -> Outcome:
    """A flow is failed over while it is behind, and what it left is replayed."""
    partitions = dice.choice([1, 3])
    for side in stream.sides.values():
        side.create(topic, partitions, **_config())
    driver, flow = Driver(stream.sides, job=topic), flow_spec(topic, provenance="headers")
    first = _written(stream, topic, dice, 60)
    parts = assigned(topic, topic, partitions, max_message_bytes=8_000_000)
    copy_through(driver, flow, parts, within_s=_PATIENCE_S)
    written = _written(stream, topic, dice, 500, first=60)
    for partition, sent in first.committed.items():
        written.committed[partition] += sent
    for partition, sent in first.aborted.items():
        written.aborted[partition] += sent
    end_flow(driver, topic)
    leave(stream.sides, topic)
    task = replaying(flow, stream.sides["dc1"], stream.through, topic, partitions)
    _run(stream, task, chooser)
    here, there = (dict(stream.sides[name].client) for name in ("dc1", "dc2"))
    report = checker.compare(here, there, topic, hops=1, written=written, patience=_PATIENCE_S)
    return Outcome(topic, f"replay, {partitions} partitions", [report], 1 + len(task.attempts), task.attempts)


def file_round(stream: Stream, topic: str, dice: random.Random, chooser: Chooser) -> Outcome:
    """Lines of files become records, each file in a partition of its own."""
    count = dice.choice([1, 3])
    folder = stream.folder / topic
    folder.mkdir()
    lines = {
        number: [
            b"%d/%d %s" % (number, one, bytes([97 + one % 26]) * dice.randrange(400)) for one in range(800)
        ]
        for number in range(count)
    }
    files = [folder / f"file-{number}.txt" for number in lines]
    for file, some in zip(files, lines.values(), strict=True):
        file.write_bytes(b"".join(one + b"\n" for one in some))
    for side in stream.sides.values():
        side.create(topic, count, **_config())
    driver = Driver(stream.sides, job=topic)
    task = loading(driver, flow_spec(topic), stream.through, topic, files)
    _run(stream, task, chooser)
    there = checker.read(dict(stream.sides["dc2"].client), topic)
    left: Log = {number: [_line(at, one) for at, one in enumerate(some)] for number, some in lines.items()}
    right: Log = {
        at: [one._replace(timestamp=0, digest=one.content) for one in log] for at, log in there.items()
    }
    report = checker.compare_logs(left, right, str(folder), topic)
    return Outcome(topic, f"file, {count} files", [report], 1 + len(task.attempts), task.attempts)


def _line(number: int, line: bytes) -> Seen:
    content = digest(None, None, line, [])
    return Seen(number, 0, content, content, repr(line[:20]))


def spark_round(stream: Stream, topic: str, dice: random.Random, chooser: Chooser) -> Outcome:
    """The whole job on Spark: one flow copies as it is, another one filters and masks (SQL)."""
    began, masked = time.monotonic(), f"{topic}-masked"
    for one in (topic, masked):
        prepare(stream.sides, one, mirror=False)
    flows = [flow_of(topic, [topic]), flow_of(masked, [masked], transform=checker.TRANSFORM)]
    spec = spec_of(stream.lab, topic, flows)
    spec = replace(spec, clusters={**spec.clusters, "dc2": stream.through})
    copier = SparkCopier(spec, stream.folder / f"{topic}.json")
    here, there = (dict(stream.sides[name].client) for name in ("dc1", "dc2"))
    wanted = checker.Spec(records=10**9, rate=200.0, seed=dice.randrange(10**6), large_every=400)
    with ExitStack() as stack:
        kept = stack.enter_context(Kept(copier, (), stream.folder / f"{topic}.log"))
        writers = [
            stack.enter_context(checker.writing(here, topic, wanted)),
            stack.enter_context(
                checker.writing(here, masked, checker.Spec(**{**asdict(wanted), "json": True}))
            ),
        ]
        for writer in writers:
            writer.wait_for(50)
        wait_for(lambda: kept.victims("worker"), timeout=240)
        stream.proxy.begin(chooser, lambda _: kept.leave_behind(frozen=False))
        _await_blows(chooser)
        stream.proxy.calm()
        changes = (None, checker.masking)
        reports = [
            checker.compare(here, there, one, written=writer.written, change=change, patience=_PATIENCE_S)
            for one, writer, change in zip((topic, masked), writers, changes, strict=True)
        ]
        wait_for(lambda: not kept.outlived(), timeout=_PATIENCE_S)
    return Outcome(
        topic, "job on Spark, raw and SQL", reports, kept.starts, kept.failures, time.monotonic() - began
    )

"""The daily life of a cluster: a machine is lost, all Workers are restarted, the load is uneven."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Producer

from runtime.contract.records.ledger import PartitionKey
from tests import checker
from tests.checker import Kind
from tests.records import create_topic, wait_for
from tests.spark.arrivals import Arrivals
from tests.spark.cluster_job import WITHIN_S, ClusterJob, Site
from tests.spark.standalone import Worker

PARTITIONS = 8
RATE = 400.0  # records a second
BUSY, UNEVEN = 4, 40  # partitions
BUSY_VALUE, BUSY_RATE = b"x" * 4096, 25  # 100 KB/s for each busy partition
CALM_S = 35.0  # longer than the time between two levellings


@dataclass(frozen=True, slots=True)
class Outcome:
    """`again_s`: the longest pause of a partition that was hit, as a reader at the destination sees it, and
    `others_s` that of the others. `whole_s`: the time until every slot ran again.
    """

    story: str
    again_s: float
    others_s: float
    whole_s: float
    records: int
    lost: int
    doubled: int
    reordered: int
    note: str = ""

    @property
    def clean(self) -> bool:
        return not (self.lost or self.doubled or self.reordered)


class Stories:
    """They share one job of four slots; each has a topic of its own."""

    def __init__(self, place: Site, conf: Mapping[str, str]) -> None:
        self._place = place
        self.told: dict[str, Callable[[], Outcome]] = {
            "lost": self.machine_lost,
            "rolling": self.rolling_restart,
            "balance": self.uneven_load,
        }
        for name in self.told:
            partitions = UNEVEN if name == "balance" else PARTITIONS
            create_topic(place.client("dc1"), name, partitions, config=checker.TOPIC_CONFIG)
        self.job = ClusterJob(place, list(self.told), slots=len(place.spark.workers), conf=conf)

    def machine_lost(self) -> Outcome:
        """The network of a machine is cut, and all its processes are killed."""
        worker = next(one for one in self._place.spark.workers if self._running_on(one, "lost")[1])
        with self._load("lost") as writer, Arrivals(self._place.client("dc2"), "lost") as arrivals:
            arrivals.wait_for_all(WITHIN_S)
            dead, hit = self._running_on(worker, "lost")
            arrivals.begin()
            began = time.monotonic()
            worker.lose()
            wait_for(lambda: hit <= set(self.job.placement(without=dead)), WITHIN_S, 0.2, about=self.job.log)
            arrivals.wait_for_all(WITHIN_S)
            partitions = {one.partition for one in hit}
            again, others = arrivals.longest(partitions), arrivals.longest(_others(partitions))
            self.job.wait_for_slots(dead)
            whole = time.monotonic() - began
            note = f"{len(dead)} of {self.job.slots} slots and {len(hit)} of {PARTITIONS} partitions hit"
            outcome = self._outcome("lost", "a machine is lost", writer.written, again, others, whole, note)
        worker.come_back()
        self._place.spark.master.wait_for_workers(len(self._place.spark.workers))
        return outcome

    def rolling_restart(self) -> Outcome:
        """Each Worker is stopped and started, the next one when every slot runs again."""
        again = others = whole = 0.0
        with self._load("rolling") as writer, Arrivals(self._place.client("dc2"), "rolling") as arrivals:
            arrivals.wait_for_all(WITHIN_S)
            stopped = 0
            for worker in self._place.spark.workers:
                dead, hit = self._running_on(worker, "rolling")
                arrivals.begin()
                began = time.monotonic()
                worker.restart()
                self.job.wait_for_slots(dead)
                whole = max(whole, time.monotonic() - began)
                arrivals.wait_for_all(WITHIN_S)
                partitions = {one.partition for one in hit}
                again = max(again, arrivals.longest(partitions))
                others = max(others, arrivals.longest(_others(partitions)))
                stopped += len(dead)
            note = (
                f"{len(self._place.spark.workers)} restarts stopped {stopped} slots; the longest times of all"
            )
            return self._outcome("rolling", "rolling restart", writer.written, again, others, whole, note)

    def uneven_load(self) -> Outcome:
        """The busy partitions are all in one slot at first."""
        topic = "balance"
        before = self._placed(topic)
        slot, _ = Counter(before.values()).most_common(1)[0]
        busy = sorted(key for key, one in before.items() if one == slot)[:BUSY]
        with Arrivals(self._place.client("dc2"), topic) as arrivals:
            began = time.monotonic()
            with _uneven(self._place.client("dc1"), topic, [one.partition for one in busy]):
                arrivals.wait_for_all(WITHIN_S)
                arrivals.begin()
                wait_for(
                    lambda: len({self._placed(topic).get(one) for one in busy}) == BUSY,
                    WITHIN_S,
                    0.5,
                    about=self.job.log,
                )
                whole = time.monotonic() - began
                time.sleep(CALM_S)  # what is level must stay where it is
                arrivals.wait_for_all(WITHIN_S)
                after = self._placed(topic)
                moved = {key for key, one in before.items() if after.get(key) != one}
                numbers = {one.partition for one in moved}
                again = arrivals.longest(numbers)
                others = arrivals.longest(set(range(UNEVEN)) - numbers)
            note = (
                f"busy partitions in each slot: {_spread(before, busy)} before, {_spread(after, busy)} after;"
                f" {len(moved & set(busy))} busy and {len(moved - set(busy))} quiet ones of {UNEVEN} moved"
            )
            return self._outcome(topic, "uneven load", None, again, others, whole, note)

    def _load(self, topic: str) -> Any:
        load = checker.Spec(records=10**9, rate=RATE, large_every=0)
        return checker.writing(self._place.client("dc1"), topic, load)

    def _running_on(self, worker: Worker, topic: str) -> tuple[set[int], set[PartitionKey]]:
        """The processes of slots on this Worker, and their partitions of the topic."""
        slots = self.job.processes_on(worker)
        placed = self._placed(topic)
        return set(slots.values()), {key for key, slot in placed.items() if slot in slots}

    def _placed(self, topic: str) -> dict[PartitionKey, int]:
        return {key: slot for key, slot in self.job.placement().items() if key.topic == topic}

    def _outcome(
        self,
        topic: str,
        story: str,
        written: checker.Written | None,
        again: float,
        others: float,
        whole: float,
        note: str,
    ) -> Outcome:
        source, there = (self._place.client(name) for name in ("dc1", "dc2"))
        report = checker.compare(source, there, topic, written=written, patience=WITHIN_S)
        if not report.clean:
            print(report, flush=True)
        return Outcome(
            story,
            again,
            others,
            whole,
            report.records,
            lost=report.count(Kind.MISSING),
            doubled=report.count(Kind.DOUBLED),
            reordered=report.count(Kind.REORDERED),
            note=note,
        )


def _others(hit: set[int]) -> set[int]:
    return set(range(PARTITIONS)) - hit


def _spread(placed: Mapping[PartitionKey, int], busy: Sequence[PartitionKey]) -> str:
    """How many of the busy partitions each slot has, the most first."""
    counts = Counter(placed[one] for one in busy)
    return "+".join(str(count) for _, count in counts.most_common())


@contextmanager
def _uneven(client: Mapping[str, Any], topic: str, busy: Sequence[int]) -> Iterator[None]:
    """Writes all the time: much to the busy partitions, one small record a second to each of the others."""
    stop = threading.Event()
    failed: list[object] = []

    def write() -> None:
        producer = Producer({**client, "enable.idempotence": True, "linger.ms": 20})
        for number in itertools.count():
            if stop.wait(1 / BUSY_RATE):
                break
            for partition in busy:
                producer.produce(topic, b"%d %s" % (number, BUSY_VALUE), partition=partition)
            for partition in range(number % BUSY_RATE, UNEVEN, BUSY_RATE):
                producer.produce(topic, b"%d" % number, partition=partition)
            producer.poll(0)
        if left := producer.flush(60):
            failed.append(f"{left} records of {topic} were not acknowledged")

    thread = threading.Thread(target=write, name="uneven")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert not failed, failed[0]

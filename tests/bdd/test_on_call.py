"""Steps of failing_over/on_call.feature: a night with two losses of dc1, told by what the commands print."""

import datetime
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer
from pytest_bdd import given, parsers, scenarios, then, when

from tests.bdd.consuming import eat, place
from tests.bdd.running import Town, eventually, two_datacenters
from tests.planner.ui.serving import LivePage
from tests.records import PATIENCE_S, read

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.long]

scenarios("failing_over/on_call.feature")

FLOW = "orders-to-dc2"
LIMITS = (
    "max.message.bytes",
    "message.timestamp.type",
    "message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms",
)


class Origin(NamedTuple):
    """Where a record was produced."""

    cluster: str
    topic: str
    partition: int
    offset: int


def topic(word: str, cluster: str) -> str:
    return word if cluster == "dc1" else f"dc1.{word}"


@dataclass
class Night:
    """`origins` has every record of orders that was produced, by its value; `read` is what billing read."""

    town: Town
    origins: dict[bytes, Origin] = field(default_factory=dict)
    behind: list[bytes] = field(default_factory=list)
    read: list[bytes] = field(default_factory=list)
    limits: dict[str, str] = field(default_factory=dict)
    page: LivePage | None = None

    def live_page(self) -> LivePage:
        if self.page is None:
            self.page = LivePage(self.town.topology.file, self.town.home)
        return self.page

    def approved(self, command: str) -> None:
        self.repl(command, "--auto-approve")
        assert self.town.last().returncode == 0, self.town.last()

    def pause_and_write(self, count: int) -> None:
        """Returns when the job has seen the end of orders at dc1.

        What is printed of a cluster that can't be reached is what the job saw of it last.
        """
        self.approved(f"repl pause {FLOW}")
        self.behind = self.write("orders", "dc1", count)
        unreachable = self.town.topology.file.with_name("unreachable.yaml")
        text = self.town.topology.file.read_text()
        unreachable.write_text(text.replace(self.town.lab.clusters["dc1"].bootstrap, "127.0.0.1:1"))
        rehearsal = ("failover", "dc1", str(unreachable), "--rehearse")
        missing = f"at least {count} records"
        eventually(lambda: missing in self.town.run(*rehearsal).stdout, about="the end of orders at dc1")

    def remove_retention(self) -> None:
        file = self.town.topology.file
        body = json.loads(file.read_text())
        (orders,) = [topic for topic in body["topics"] if topic["name"] == "orders"]
        del orders["config"]["retention.bytes"]
        file.write_text(json.dumps(body, indent=1))

    def delete_refunds(self) -> None:
        self.town.delete("dc1.refunds", "dc2")
        eventually(lambda: self.town.partitions("dc1.refunds", "dc2") == 0, about="dc1.refunds is gone")

    def repl(self, command: str, *more: str) -> str:
        """Runs `repl …` over the topology, and returns what it printed to stdout."""
        words = [*command.removeprefix("repl ").split(), str(self.town.topology.file), *more]
        return self.town.run(*words).stdout

    def write(self, word: str, cluster: str, count: int) -> list[bytes]:
        name = topic(word, cluster)
        producer = Producer({**self.town.client(cluster), "enable.idempotence": True})
        partitions = self.town.partitions(name, cluster)
        written: list[bytes] = []

        def delivered(failure: object, message: Any) -> None:
            assert failure is None
            origin = Origin(cluster, name, message.partition(), message.offset())
            if word == "orders":
                self.origins[message.value()] = origin

        for _ in range(count):
            number = next(self.town.numbers)
            written.append(f"{cluster}-{number}".encode())
            producer.produce(name, written[-1], partition=number % partitions, on_delivery=delivered)
        assert producer.flush(PATIENCE_S) == 0
        return written

    def held(self, word: str, cluster: str) -> list[bytes]:
        return [one.value or b"" for one in read(self.town.client(cluster), topic(word, cluster))]

    def holds(self, word: str, cluster: str, count: int) -> bool:
        return len(self.held(word, cluster)) >= count

    def billing_reads(self, cluster: str, count: int, more_s: float = 0) -> list[bytes]:
        """With `more_s`, nothing comes after them for that long."""
        settings = {"group.id": "billing", "enable.auto.commit": "false", "auto.offset.reset": "earliest"}
        consumer = Consumer({**self.town.client(cluster), **settings, "isolation.level": "read_committed"})
        consumer.subscribe([topic("orders", cluster)])
        found = eat(consumer, count)
        more = consumer.poll(more_s) if more_s else None
        consumer.close()
        assert more is None or more.error() is not None, more.value()
        self.read += found
        return found

    def require_origins(self, cluster: str) -> None:
        """What repl read tells of each record of orders is where it was produced."""
        held = Counter(self.held("orders", cluster))
        told = json.loads(
            self.repl(f"repl read {cluster} {topic('orders', cluster)}", "--limit", "1000", "--json")
        )
        found = {}
        for one in told["records"]:
            value = one["value"]["text"].encode()
            here = Origin(cluster, told["topic"], one["partition"], one["offset"])
            first = one["hops"][0] if one["hops"] else None
            found[value] = (
                here
                if first is None
                else Origin(first["cluster"], first["topic"], first["partition"], first["offset"])
            )
        assert found == {value: self.origins[value] for value in held}
        assert set(held.values()) == {1}

    def limits_at_home(self) -> dict[str, str]:
        return {key: self.town.config("orders", "dc1", key) for key in LIMITS}


@pytest.fixture
def night(tmp_path: Path) -> Iterator[Night]:
    flow = {"name": FLOW, "topics": {"include": ["orders", "refunds"]}, "groups": {"every": "300ms"}}
    with two_datacenters(tmp_path / "night", "night", flow) as town:
        town.topology.topic("orders", partitions=2, config={"retention.bytes": "100MB"})
        town.topology.topic("refunds", partitions=1)
        night = Night(town)
        try:
            yield night
        finally:
            if night.page is not None:
                night.page.kill()


@pytest.fixture
def town(night: Night) -> Town:
    """For the steps that all stories share."""
    return night.town


# Given


@given("the flow orders-to-dc2 copies orders and refunds from dc1 to dc2 as dc1.orders and dc1.refunds")
def _(night: Night) -> None:
    night.town.apply()
    night.limits = night.limits_at_home()


@given(
    parsers.parse(
        "{orders:d} records are written to orders at dc1, {refunds:d} to refunds, and all arrive at dc2"
    )
)
def _(night: Night, orders: int, refunds: int) -> None:
    night.write("orders", "dc1", orders)
    night.write("refunds", "dc1", refunds)
    eventually(lambda: len(night.held("orders", "dc2")) == orders, about="orders at dc2")
    eventually(lambda: len(night.held("refunds", "dc2")) == refunds, about="refunds at dc2")


@given(
    parsers.parse(
        "the consumer group billing has read {count:d} records of orders at dc1, and dc2 knows its offsets"
    )
)
def _(night: Night, count: int) -> None:
    night.billing_reads("dc1", count)
    at_dc1 = place(night.town, "billing", "dc1", "orders")
    eventually(
        lambda: len(place(night.town, "billing", "dc2", topic("orders", "dc2"))) == len(at_dc1),
        about="the offsets of billing at dc2",
    )


@given(parsers.parse('the live page is open, and says of dc1 "{words}"'))
def _(night: Night, words: str) -> None:
    night.live_page().says(f"Fail over dc1: {words}")


@given("the live page shows the plan, the history, the flow, and billing in a search")
def _(night: Night) -> None:
    page = night.live_page()
    page.says("No changes. The clusters match the topology.", "plan")
    page.says("No drift. The clusters are as they were applied.", "plan")
    page.says("done", "history")
    page.says("billing", "search?q=bill")
    page.says("billing", f"groups?flow={FLOW}")
    page.says("dc1.orders", f"flow?name={FLOW}")
    page.says("The last lines of", "job?name=dc2")


@given(parsers.parse("the flow is paused while {count:d} records are written to orders at dc1"))
def _(night: Night, count: int) -> None:
    night.pause_and_write(count)


# When


@when(parsers.parse('the engineer runs "{command}"'))
def _(night: Night, command: str) -> None:
    reads = command.startswith("repl salvage") and "--replay" not in command
    night.repl(command, *(() if reads else ("--auto-approve",)))


@when(parsers.parse("{count:d} records are written to {name} at {cluster}"))
def _(night: Night, count: int, name: str, cluster: str) -> None:
    word = name.removeprefix("dc1.")
    assert topic(word, cluster) == name
    night.write(word, cluster, count)


@when("the engineer removes retention.bytes of orders from the topology")
def _(night: Night) -> None:
    night.remove_retention()


@when("dc1.refunds is deleted at dc2 by hand")
def _(night: Night) -> None:
    night.delete_refunds()


# Then


@then(parsers.parse('the live page says of dc1 "{words}"'))
def _(night: Night, words: str) -> None:
    night.live_page().says(f"Fail over dc1: {words}")


@then(parsers.parse('the live page says "{words}"'))
def _(night: Night, words: str) -> None:
    night.live_page().says(words)


@then("the live page shows the offsets of billing at both sides, until Ctrl-C closes it")
def _(night: Night) -> None:
    partitions = len(place(night.town, "billing", "dc2", topic("orders", "dc2")))
    page = night.live_page().text("group?name=billing")
    assert "does not answer" in page
    assert page.count("orders") >= partitions, page
    assert night.live_page().close() == 130


@then("the command tells billing to subscribe to dc1.orders at dc2")
def _(night: Night) -> None:
    done = night.town.last()
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    (line,) = [one for one in done.stdout.splitlines() if "billing" in one and "dc1.orders" in one]
    assert "dc1.refunds" not in line


@then(parsers.parse("the command says that at least {count:d} records are missing, as of the last minute"))
def _(night: Night, count: int) -> None:
    _, _, arrived = night.town.last().stdout.partition("What did not arrive:")
    assert f"at least {count} records" in arrived
    told = re.search(r"as of (\S+ \S+)Z", arrived)
    assert told is not None, arrived
    heard = datetime.datetime.fromisoformat(f"{told[1]}+00:00")
    assert datetime.datetime.now(datetime.UTC) - heard < datetime.timedelta(minutes=1)


@then(
    parsers.parse("billing reads at dc2 exactly the {count:d} records that it had not read and that arrived")
)
def _(night: Night, count: int) -> None:
    arrived = Counter(list(night.origins)) - Counter(night.read) - Counter(night.behind)
    assert arrived.total() == count
    assert Counter(night.billing_reads("dc2", count, more_s=2)) == arrived


@then("billing reads at dc2 exactly the records that it had not read")
def _(night: Night) -> None:
    unread = Counter(list(night.origins)) - Counter(night.read)
    assert Counter(night.billing_reads("dc2", unread.total(), more_s=2)) == unread


@then(parsers.parse("the command lists {count:d} records"))
def _(night: Night, count: int) -> None:
    assert f"{count} records of dc1 never reached dc2" in night.town.last().stdout


@then(parsers.parse('the command says "{text}"'))
def _(night: Night, text: str) -> None:
    done = night.town.last()
    assert (done.returncode, text in done.stdout) == (0, True), f"{done.stdout}\n{done.stderr}"


@then(
    parsers.parse(
        "the command warns that {group} has not read up to {count:d} replayed records of {topic} at {cluster}"
    )
)
def _(night: Night, group: str, count: int, topic: str, cluster: str) -> None:
    said = night.town.last().stderr
    warned = (
        f"the group {group} has not read up to {count} records of {topic} at {cluster} that salvage replayed"
    )
    assert warned in " ".join(said.split()), said


@then("repl locate says that a record left behind was replayed by salvage")
def _(night: Night) -> None:
    origin = night.origins[night.behind[0]]
    told = night.repl(f"repl locate {FLOW} {origin.topic}:{origin.partition}:{origin.offset}")
    assert "replayed by salvage" in told, night.town.last()


@then(parsers.parse("repl read names the true origin of every record at {cluster}"))
def _(night: Night, cluster: str) -> None:
    night.require_origins(cluster)


@then("the limits of orders at dc1 are what they were before the failback")
def _(night: Night) -> None:
    done = night.town.last()
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert night.limits_at_home() == night.limits


@then(
    parsers.parse(
        "both clusters hold the same {count:d} records of orders, and repl read names the true origin of each"
    )
)
def _(night: Night, count: int) -> None:
    assert len(night.origins) == count
    for cluster in ("dc1", "dc2"):
        eventually(partial(night.holds, "orders", cluster, count), about=f"orders at {cluster}")
        assert Counter(night.held("orders", cluster)) == Counter(list(night.origins))
        night.require_origins(cluster)


@then(parsers.parse("repl verify finds no difference, and counts {count:d} replayed records"))
def _(night: Night, count: int) -> None:
    told = json.loads(night.repl(f"repl verify {FLOW}", "--json"))
    assert night.town.last().returncode == 0, night.town.last().stderr
    assert told["equal"]
    assert sum(one["replayed"] for one in told["partitions"]) == count


@then("repl plan shows retention.bytes of orders leaving at dc1 and at dc2")
def _(night: Night) -> None:
    told = json.loads(night.repl("repl plan", "--json"))
    fields = {
        change["address"]: {".".join(one["path"]): one["new"] for one in change["change"]["fields"]}
        for change in told["resource_changes"]
        if change["change"]["actions"] != ["no-op"]
    }
    assert fields == {
        "topic.dc1.orders": {"config.retention.bytes": None},
        "topic.dc2.dc1.orders": {"config.retention.bytes": None},
    }


@then(parsers.parse('repl plan says "{text}"'))
def _(night: Night, text: str) -> None:
    assert text in night.repl("repl plan"), night.town.last()


@then(parsers.parse('apply and status name "{command}" as the next command'))
def _(night: Night, command: str) -> None:
    applied = night.town.last()
    assert command in applied.stdout + applied.stderr, applied
    status = night.repl("repl status")
    assert command in status, status
    assert "nothing behind" not in status


@then(parsers.parse("dc1.refunds at dc2 holds exactly the last {count:d} records of refunds"))
def _(night: Night, count: int) -> None:
    done = night.town.last()
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    eventually(lambda: len(night.held("refunds", "dc2")) >= count, about="refunds at dc2")
    assert night.held("refunds", "dc2") == night.held("refunds", "dc1")[-count:]

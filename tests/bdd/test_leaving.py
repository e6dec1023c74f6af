"""Steps of features/migrating/leaving.feature: the story of docs/how-to/migrate.md, on clusters with SASL."""

import json
import threading
import time
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from itertools import count, cycle
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.schema_registry import SchemaRegistryClient, topic_subject_name_strategy
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pytest_bdd import given, parsers, scenarios, then, when

from runtime.lab.cluster import Security
from runtime.lab.lab import Lab
from tests.bdd.migrating import killed_once_it_says, open_transaction, rights
from tests.bdd.running import SMALL, Town, eventually, log_in, one_way
from tests.fakes.registry import registry_server
from tests.labs import running_lab, spark_kafka, spec
from tests.records import PATIENCE_S

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(2700)]

scenarios("migrating/leaving.feature")

TOPICS = {
    "billing": ("orders", "payments"),
    "shop": ("bills", *(f"item-{number:02}" for number in range(99))),
}
REFUSED = KafkaError.TOPIC_AUTHORIZATION_FAILED
RECORD = {"type": "record", "name": "Event", "fields": [{"name": "number", "type": "long"}]}
STRATEGY = {"subject.name.strategy": topic_subject_name_strategy}
Event = tuple[str, int]


class Application:
    """Writes and reads the topics of a wave in Avro, at the cluster that its handed-out file names.

    Without the file that is dc1. A record that is refused was not written, and is written again.
    """

    def __init__(self, name: str, lab: Lab, registries: dict[str, str], file: Path) -> None:
        self.name, self.file = name, file
        self._lab, self._registries = lab, registries
        self.written: list[Event] = []
        self.read: list[Event] = []
        self.refused = threading.Event()
        self.writes_at = self.reads_at = ""
        self.producer_at = self.consumer_at = ""  # where its clients are, whether there is a record or not
        self.pauses_s: list[float] = []  # from the last record at a cluster to the first at the next one
        self._acknowledged_s = 0.0
        self.stops_to_write, self._ends = threading.Event(), threading.Event()
        self._threads = ThreadPoolExecutor(2)
        self._runs = [self._threads.submit(run) for run in (self._write, self._consume)]

    def check(self) -> None:
        """Raises what one of its threads has ended by."""
        for run in self._runs:
            if run.done():
                run.result()

    def cluster(self) -> str:
        with suppress(FileNotFoundError):
            lines = self.file.read_text().splitlines()
            (bootstrap,) = (line.split("=", 1)[1] for line in lines if line.startswith("bootstrap.servers="))
            return next(name for name, one in self._lab.clusters.items() if one.bootstrap == bootstrap)
        return "dc1"

    def _write(self) -> None:
        first, *others = TOPICS[self.name]
        topics, numbers = cycle(topic for other in others for topic in (first, other)), count()
        event: Event = next(topics), next(numbers)
        while not self._ends.is_set():
            cluster = self.cluster()
            client = self._lab.clusters[cluster].client_of("app")
            self.producer_at = cluster
            producer = Producer({**client, "retries": 0, "message.timeout.ms": int(PATIENCE_S * 1000)})
            with SchemaRegistryClient({"url": self._registries[cluster]}) as registry:
                encode = AvroSerializer(registry, json.dumps(RECORD), conf=STRATEGY)
                while self.cluster() == cluster and not self._ends.wait(0.02):
                    if not self.stops_to_write.is_set() and self._is_written(
                        producer, encode, cluster, event
                    ):
                        event = next(topics), next(numbers)

    def _is_written(self, producer: Producer, encode: AvroSerializer, cluster: str, event: Event) -> bool:
        answers: list[KafkaError | None] = []

        def answered(error: KafkaError | None, _: Message) -> None:
            answers.append(error)

        topic, number = event
        value = encode({"number": number}, SerializationContext(topic, MessageField.VALUE))
        try:
            producer.produce(topic, value, key=str(number), on_delivery=answered)
        except KafkaException as refused:  # the client remembers that the topic is refused
            answers.append(refused.args[0])
        assert producer.flush(2 * PATIENCE_S) == 0
        (error,) = answers
        if error is not None:
            assert error.code() == REFUSED, error
            self.refused.set()
            return False
        now_s = time.monotonic()
        if self.writes_at not in ("", cluster):
            self.pauses_s.append(now_s - self._acknowledged_s)
        self.writes_at, self._acknowledged_s = cluster, now_s
        self.written.append(event)
        self.refused.clear()
        return True

    def _consume(self) -> None:
        while not self._ends.is_set():
            cluster = self.cluster()
            client = self._lab.clusters[cluster].client_of("app")
            settings = {"auto.offset.reset": "earliest", "enable.auto.commit": False, "group.id": self.name}
            consumer = Consumer({**client, **settings, "isolation.level": "read_committed"})
            consumer.subscribe(list(TOPICS[self.name]))
            self.consumer_at = cluster
            with SchemaRegistryClient({"url": self._registries[cluster]}) as registry:
                decode = AvroDeserializer(registry, conf=STRATEGY)
                try:
                    while self.cluster() == cluster and not self._ends.is_set():
                        messages = [one for one in consumer.consume(100, 0.2) if one.error() is None]
                        for message in messages:
                            context = SerializationContext(str(message.topic()), MessageField.VALUE)
                            decoded: Any = decode(message.value(), context)
                            self.read.append((str(message.topic()), decoded["number"]))
                        if messages:
                            consumer.commit(asynchronous=False)
                            self.reads_at = cluster
                finally:
                    consumer.close()

    def works_at(self, cluster: str) -> bool:
        """Returns whether it wrote there, and has read at least one record there."""
        self.check()
        return self.writes_at == cluster and self.reads_at == cluster

    def has_read_all(self) -> bool:
        self.check()
        return len(self.read) >= len(self.written)

    def close(self) -> None:
        self._ends.set()
        self._threads.shutdown()


class Company:
    """Two clusters with a registry each, two applications, and the folder of the Spark query."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        clusters = [spec(name, security=Security.SASL) for name in ("dc1", "dc2")]
        lab = stack.enter_context(running_lab(folder / "lab", *clusters))
        self.registries = {name: stack.enter_context(registry_server()).url for name in lab.clusters}
        words = [word for words in TOPICS.values() for word in words]
        self.town = one_way(lab, folder, lambda word: word, *words, groups={"every": "300ms"})
        stack.enter_context(rights(self.town, *words))
        stack.callback(self.town.over)
        log_in(self.town, "repl", folder)
        self.folder = folder
        more = self.town.topology.more
        more["registries"] = {name: {"url": url} for name, url in self.registries.items()}
        (flow,) = more["flows"]
        schemas = {"sync": True, "ids": "translate"}
        more["flows"] = [
            flow | {"name": name, "topics": {"include": list(topics)}, "schemas": schemas}
            for name, topics in TOPICS.items()
        ]
        gate = {"for": "1s", "verify": "10%"}
        more["cutovers"] = [
            {
                "name": "to-cloud",
                "flows": list(TOPICS),
                "hand_out": [{"file": "clients/{wave}.properties"}],
                "waves": [
                    {"name": name, "topics": list(topics), "groups": [name], "gate": gate}
                    for name, topics in TOPICS.items()
                ],
            }
        ]
        more["jobs"]["dc1"] = SMALL  # the job of the way back
        self.town.apply()
        self.applications = {
            name: Application(name, lab, self.registries, folder / "clients" / f"{name}.properties")
            for name in TOPICS
        }
        for application in self.applications.values():
            stack.callback(application.close)

    def all_at_dc2(self, application: Application) -> bool:
        """Returns whether dc2 holds each topic's records as often as they were written."""
        at_dc2 = Counter(topic for topic in TOPICS[application.name] for _ in self.town.records(topic, "dc2"))
        return at_dc2 == Counter(topic for topic, _ in application.written)

    def query(self, cluster: str, checkpoint: str, output: str, failing_batch: int | None = None) -> None:
        """Runs the Spark query over all that bills holds there."""
        there = self.town.lab.clusters[cluster]
        client = there.client_of("app")
        login = "org.apache.kafka.common.security.scram.ScramLoginModule required"
        jaas = f'{login} username="{client["sasl.username"]}" password="{client["sasl.password"]}";'
        settings = {key: client[key] for key in ("security.protocol",)}
        settings |= {"sasl.mechanism": client["sasl.mechanism"], "sasl.jaas.config": jaas}
        paths = self.folder / checkpoint, self.folder / output
        done = spark_kafka.run(there.bootstrap, "bills", *paths, failing_batch, settings=settings)
        assert (done.returncode == 0) is (failing_batch is None), done.stderr


@pytest.fixture
def company(tmp_path: Path) -> Iterator[Company]:
    with ExitStack() as stack:
        yield Company(tmp_path, stack)


@pytest.fixture
def town(company: Company) -> Town:
    return company.town


@given("billing with 2 topics and shop with 100 are copied from dc1 to dc2, each by a flow of its own")
def _(company: Company) -> None:
    assert [len(topics) for topics in TOPICS.values()] == [2, 100]


@given("billing and shop write and read their topics at dc1")
def _(company: Company) -> None:
    for application in company.applications.values():
        eventually(partial(application.works_at, "dc1"), about=application.name)


@given("a Spark query reads bills at dc1, and fails in a batch")
def _(company: Company) -> None:
    eventually(lambda: len(company.town.records("bills", "dc1")) > 100, about="records of bills")
    company.query("dc1", "checkpoint", "at-dc1", failing_batch=1)


@when(parsers.re(r'repl cutover (?P<words>to-cloud[^"]*) is killed with -9 once it says "(?P<text>[^"]*)"$'))
def _(company: Company, words: str, text: str) -> None:
    killed_once_it_says(company.town, text, words)


@when(parsers.parse('repl cutover to-cloud is killed with -9 once it says "{text}", while one is open'))
def _(company: Company, text: str) -> None:
    with open_transaction(company.town, "orders"):
        killed_once_it_says(company.town, text)


@when(parsers.parse("the engineer runs repl cutover {words}"))
def _(company: Company, words: str) -> None:
    done = company.town.engineer("cutover", *words.split())
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


@when("billing stops to write")
def _(company: Company) -> None:
    billing = company.applications["billing"]
    billing.stops_to_write.set()
    eventually(billing.has_read_all, about="all records of billing")


@when("billing and shop stop to write")
def _(company: Company) -> None:
    for application in company.applications.values():
        application.stops_to_write.set()
        eventually(application.has_read_all, about=application.name)


@when("the file of billing is removed")
def _(company: Company) -> None:
    billing = company.applications["billing"]
    billing.file.unlink()
    # A record that is written before the consumer has left dc2 would be read there, and at dc1 again.
    eventually(lambda: billing.producer_at == billing.consumer_at == "dc1", about="clients of billing at dc1")
    billing.stops_to_write.clear()


@when("the checkpoint of the Spark query is translated")
def _(company: Company) -> None:
    arguments = (str(company.folder / "checkpoint"), "-o", str(company.folder / "moved"))
    file = str(company.town.topology.file)
    company.town.succeeds("offsets", "translate", "shop", *arguments, "--path", file)


@then("billing is refused at dc1")
def _(company: Company) -> None:
    billing = company.applications["billing"]
    eventually(billing.refused.is_set, about="a refusal")
    assert billing.writes_at == "dc1"


@then(parsers.parse("billing writes and reads at {billing}, and shop at {shop}"))
def _(company: Company, billing: str, shop: str) -> None:
    for name, cluster in (("billing", billing), ("shop", shop)):
        application = company.applications[name]
        eventually(partial(application.works_at, cluster), about=f"{name} at {cluster}")


@then("each record that was written was read and decoded once, and is once at dc2")
def _(company: Company) -> None:
    for application in company.applications.values():
        application.check()
        eventually(partial(company.all_at_dc2, application), about=f"{application.name} at dc2")
        assert Counter(application.read) == Counter(application.written), application.name
        assert max(Counter(application.written).values()) == 1
        print(f"{application.name}: {len(application.written)} records, pauses {application.pauses_s}")


@then("the Spark query has read each record of bills once")
def _(company: Company) -> None:
    company.query("dc2", "moved", "at-dc2")
    before, after = (spark_kafka.records(company.folder / name) for name in ("at-dc1", "at-dc2"))
    assert (sorted(before), min(after)) == ([0, 1], 1), "the batch that failed is run again"
    # The ids of schemas in the first five bytes differ between the clusters.
    read = Counter(b64decode(row["value"])[5:] for rows in (before | after).values() for row in rows)
    assert read == Counter((record.value or b"")[5:] for record in company.town.records("bills", "dc2"))


@then("repl status shows billing as waiting, and shop as moved with its write pause")
def _(company: Company) -> None:
    billing, shop = company.town.status().waves
    assert (billing.state, billing.fence, billing.pause_ms) == ("waiting", "not made", None)
    assert (shop.state, shop.fence, len(shop.topics)) == ("moved", "100 of 100 rules at dc1", 100)
    print(f"shop: write pause {(shop.pause_ms or 0) / 1000:.1f} s")
    assert shop.pause_ms is not None
    assert shop.pause_ms < 60_000

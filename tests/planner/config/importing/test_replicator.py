"""Replicator's connectors → flows; each key without a counterpart is noted, and no secret is copied."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from planner.config import load
from planner.config.importing.document import ConvertedTopology
from planner.config.importing.replicator import convert
from planner.model.diagnostic import Failure, Severity
from planner.model.topology import Flow, Selection
from planner.render.topology import topology_yaml
from runtime.contract.spec.flow import ConfigsSpec, Earliest, Latest, OriginCommitsSpec
from runtime.contract.spec.rename import SAME_NAME, Table, Template
from runtime.contract.spec.topic_settings import TimestampsSpec

EXAMPLE = Path(__file__).with_name("example.json")
BASE = {
    "connector.class": "io.confluent.connect.replicator.ReplicatorSourceConnector",
    "src.kafka.bootstrap.servers": "a.example:9092",
    "dest.kafka.bootstrap.servers": "b.example:9092",
    "topic.whitelist": "orders",
}


def of(*configs: object) -> ConvertedTopology:
    return convert([(f"{at}.json", json.dumps(one)) for at, one in enumerate(configs, 1)], "test")


def with_keys(keys: Mapping[str, object]) -> ConvertedTopology:
    return of({"name": "copy", "config": {**BASE, **keys}})


def flow(keys: dict[str, object]) -> Flow:
    return with_keys(keys).topology.flows["copy"]


def test_replicators_own_defaults_become_explicit() -> None:
    found = with_keys({})
    assert found.notes == ()
    assert found.topology.flows == {
        "copy": Flow(
            "copy",
            "a",
            "b",
            Selection(("orders",)),
            start=Earliest(),
            configs=ConfigsSpec("set"),
            origin_commits=OriginCommitsSpec("copy"),
        )
    }
    assert found.topology.jobs["b"].slots == "auto"


@pytest.mark.parametrize(
    ("keys", "field", "value"),
    [
        ({"topic.whitelist": "a, b.c"}, "topics.include", ("a", r"b\.c")),
        ({"topic.regex": "x.*"}, "topics.include", ("orders", "x.*")),
        ({"topic.regex": "x.*"}, "topics.default_exclude", False),
        ({"topic.regex": "x", "topic.blacklist": "y"}, "topics.exclude", ("y", "__consumer_timestamps")),
        ({"topic.blacklist": "a.b"}, "topics.exclude", (r"a\.b",)),
        ({"topic.rename.format": "${topic}"}, "rename", SAME_NAME),
        ({"topic.rename.format": "dc1.${topic}.x"}, "rename", Template("dc1.{topic}.x")),
        ({"topic.rename.format": "copied"}, "rename", Table({"orders": "copied"})),
        ({"provenance.header.enable": True}, "provenance", "headers"),
        ({"provenance.header.enable": "false"}, "provenance", "auto"),
        ({"topic.config.sync": "false"}, "configs.sync", "off"),
        ({"topic.poll.interval.ms": 120000}, "follow_every_ms", 120_000),
        ({"topic.config.sync.interval.ms": "90000"}, "follow_every_ms", 90_000),
        ({"offset.translator.tasks.max": 0}, "groups.sync", False),
        ({"offset.translator.batch.period.ms": "60000"}, "groups.every_ms", 60_000),
        ({"dest.topic.replication.factor": "3"}, "replication", 3),
        ({"dest.topic.replication.factor": 0}, "replication", None),
        ({"offset.topic.commit": "false"}, "origin_commits", None),
        ({"src.consumer.group.id": "g"}, "origin_commits.group", "g"),
        ({"src.consumer.auto.offset.reset": "latest"}, "start", Latest()),
    ],
)  # fmt: skip
def test_a_key_and_what_becomes_of_it(keys: dict[str, object], field: str, value: object) -> None:
    found: object = flow(keys)
    for name in field.split("."):
        found = getattr(found, name)
    assert found == value


@pytest.mark.parametrize(
    ("key", "value", "reason", "loss"),
    [
        ("topic.auto.create", False, "follow: off", True),
        ("topic.preserve.partitions", "false", "source's partitions", True),
        ("topic.timestamp.type", "LogAppendTime", "keep their timestamps", True),
        ("dest.topic.replication.factor", "many", "no number of copies", True),
        ("offset.start", "consumer", "start: {offsets", True),
        ("topic.regex", "(?!x).*", "regex of Java", True),
        ("provenance.header.filter.overrides", "a,b,-", "reverse_of", False),
        ("offset.translator.tasks.max", "4", "without tasks of its own", False),
        ("offset.translator.batch.size", "1", "translates every group", False),
        ("offset.timestamps.commit", True, "ledger", False),
        ("topic.poll.interval.ms", "soon", "no number of milliseconds", True),
        ("tasks.max", "many", "no number", True),
        ("value.converter", "io.confluent.connect.avro.AvroConverter", "AvroConverter", True),
        ("value.converter.schema.registry.url", "http://x", "byte for byte", True),
        ("schema.registry.topic", "_schemas", "_schemas", True),
        ("transforms", "mask", "no transforms", True),
        ("errors.tolerance", "all", "no record is left out", False),
        ("confluent.topic.replication.factor", 1, "no license", False),
        ("src.zookeeper.connect", "z:2181", "ZooKeeper", False),
        ("src.consumer.fetch.max.bytes", 1, "chosen by itself", False),
        ("producer.override.compression.type", "zstd", "whole record batches", False),
        ("src.kafka.sasl.kerberos.kinit.cmd", "/usr/bin/kinit", "with the keytab", False),
        ("src.kafka.sasl.client.callback.handler.class", "com.example.Mine", "class Mine", True),
        ("dest.kafka.ssl.protocol", "TLSv1.3", "OpenSSL", True),
        ("src.kafka.retry.backoff.ms", 100, "own Kafka clients", False),
        ("src.kafka.timestamps.producer.acks", "all", "internal.timestamps", False),
        ("topic.whitelist.more", "x", "no counterpart", True),
        ("src.kafka.security.protocol", "${file:/x:y}", "write it out", True),
        ("topic.blacklist", None, "it is null", False),
    ],
)  # fmt: skip
def test_a_key_without_counterpart_is_noted_with_its_reason(
    key: str, value: object, reason: str, loss: bool
) -> None:
    (note,) = with_keys({key: value}).notes
    assert note.source is not None
    assert (note.address, note.source.file) == (key, "1.json")
    assert note.severity is (Severity.WARNING if loss else Severity.NOTE)
    assert reason in note.summary


def test_a_rename_without_the_topic_stays_and_is_refused_by_validate() -> None:
    found = with_keys({"topic.whitelist": "a,b", "topic.rename.format": "all"})
    assert found.topology.flows["copy"].rename == Template("all")
    assert "no inverse" in found.notes[0].summary


def test_overrides_of_provenance_are_lost_only_where_headers_are_on() -> None:
    found = with_keys({"provenance.header.enable": True, "provenance.header.filter.overrides": "a,b,-"})
    assert [one.severity for one in found.notes] == [Severity.WARNING]


@pytest.mark.parametrize(
    "form",
    [
        BASE | {"name": "copy"},
        {"name": "copy", "config": BASE},
        {"name": "copy", "config": BASE | {"name": "copy"}, "tasks": [{"task": 0}], "type": "source"},
        [{"name": "copy", "config": BASE}],
        {"copy": {"info": {"name": "copy", "config": BASE, "tasks": []}, "status": {"name": "copy"}}},
    ],
)
def test_each_form_of_connect_is_read(form: object) -> None:
    assert list(of(form).topology.flows) == ["copy"]


def test_several_files_are_one_topology_and_a_cluster_is_known_by_its_addresses() -> None:
    back = {
        **BASE,
        "src.kafka.bootstrap.servers": "other.example:9092, b.example:9092",
        "dest.kafka.bootstrap.servers": "a.example:9092",
        "tasks.max": 2,
    }
    found = of(BASE | {"tasks.max": "3"}, BASE | {"tasks.max": 8}, back).topology
    assert list(found.clusters) == ["a", "b"]
    assert list(found.flows) == ["a-to-b", "a-to-b-2", "b-to-a"]
    assert {name: job.slots for name, job in found.jobs.items()} == {"b": 8, "a": 2}


@pytest.mark.parametrize(
    ("source", "destination", "names"),
    [
        ("127.0.0.1:19092", "localhost:29092", ["source", "destination"]),
        ("[::1]:1,[::1]:2", "10.0.0.1:9092", ["source", "destination"]),
        ("kafka.dc1:1", "kafka.dc2:1", ["kafka", "kafka-2"]),
        ("SASL_SSL://x.example:1", "_y_:1", ["x", "y_"]),
    ],
)
def test_clusters_are_named_after_their_first_host(source: str, destination: str, names: list[str]) -> None:
    keys = {"src.kafka.bootstrap.servers": source, "dest.kafka.bootstrap.servers": destination}
    assert list(with_keys(keys).topology.clusters) == names


SECRETS = {
    "src.kafka.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="u" password="hunter2";',
    "dest.kafka.ssl.key.password": "hunter2",
    "producer.override.ssl.keystore.key": "hunter2",
    "dest.kafka.ssl.truststore.password": "hunter2",
    "confluent.license": "hunter2",
    "confluent.topic.sasl.jaas.config": "hunter2",
    "schema.registry.client.basic.auth.user.info": "u:hunter2",
    "some.password": "hunter2",
}


def test_no_secret_is_copied_anywhere() -> None:
    found = with_keys({**SECRETS})
    assert found.topology.clusters["a"].client == {
        "sasl.username": "u",
        "sasl.password": {"env": "A_SASL_PASSWORD"},
    }
    assert found.topology.clusters["b"].client == {
        "ssl.key.password": {"env": "B_SSL_KEY_PASSWORD"},
        "ssl.key.pem": {"env": "B_SSL_KEY_PEM"},
    }
    assert "hunter2" not in repr(found) + topology_yaml(found.topology)


def test_a_second_connector_with_another_login_is_noted() -> None:
    (note,) = of(BASE, BASE | {"src.kafka.client.id": "x"}).notes
    assert note.source is not None
    assert (note.address, note.source.file) == ("src.kafka.bootstrap.servers", "2.json")
    assert "a cluster has one client" in note.summary


def test_lookups_of_consumer_timestamps_keep_their_retry_and_expiry() -> None:
    found = with_keys({"fetch.offset.retry.backoff.ms": 500, "fetch.offset.expiry.ms": "600000"})
    assert found.topology.internal.timestamps == TimestampsSpec(retry_ms=500, expiry_ms=600_000)
    assert found.notes == ()


def test_consumer_timestamps_of_several_connectors_have_the_largest_numbers() -> None:
    topic = "src.kafka.timestamps.topic"
    found = of(
        BASE | {f"{topic}.replication.factor": 3},
        BASE | {f"{topic}.replication.factor": "2", f"{topic}.num.partitions": 8},
    )
    assert found.topology.internal.timestamps == TimestampsSpec(replication=3, partitions=8)
    assert found.notes == ()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is no JSON"),
        ("{", "is no JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a": ' * 600 + "1" + "}" * 600, "no connector.class|nested too deeply"),
        ('{"a": ' + "9" * 5_000 + "}", "can't be read"),
        ("[]", "no connector configuration"),
        ("3", "no connector configuration"),
        ('{"name": "x", "config": {}}', "names no connector.class"),
        ('{"connector.class": "a.b.FileStreamSource"}', "is a FileStreamSource"),
        (json.dumps(BASE | {"topic.whitelist": ""}), "copies no topic"),
        (json.dumps(BASE | {"topic.whitelist": ["a"]}), "no text, number or boolean"),
        (json.dumps(BASE | {"topic.whitelist": "\ud800"}), "half of a surrogate pair"),
        (json.dumps(BASE | {"dest.kafka.bootstrap.servers": " "}), "does not say where its destination is"),
        (json.dumps(BASE | {"src.kafka.bootstrap.servers": "${file:/x:y}"}), "config provider"),
    ],
)  # fmt: skip
def test_what_is_no_replicator_is_an_error(text: str, why: str) -> None:
    with pytest.raises(Failure, match=why):
        convert([("replicator.json", text)], "test")


def test_the_example_is_a_topology_that_loads_and_each_note_has_its_line(tmp_path: Path) -> None:
    text = EXAMPLE.read_text()
    found = convert([(EXAMPLE.name, text)], "example")
    file = tmp_path / "topology.yaml"
    file.write_text(topology_yaml(found.topology, ["header"], [one.summary for one in found.notes]))
    loaded = load(file)
    assert {name: one.topics for name, one in loaded.flows.items()} == {
        name: one.topics for name, one in found.topology.flows.items()
    }
    assert loaded.internal.timestamps.replication == 3
    assert "w:ord" not in file.read_text()
    lines = text.splitlines()
    assert found.notes
    assert all(f'"{one.address}":' in lines[one.source.line - 1] for one in found.notes if one.source)


def test_every_key_of_the_example_is_either_used_or_noted() -> None:
    """Without a key, the result differs: nothing is dropped in silence."""
    example = json.loads(EXAMPLE.read_text())
    whole = convert([("x", json.dumps(example))], "x")
    usual = {  # they say what is so by default, here and at Replicator
        *("key.converter", "value.converter", "header.converter"),
        *("topic.auto.create", "topic.preserve.partitions", "topic.config.sync", "offset.topic.commit"),
        *("connector.class", "src.kafka.bootstrap.servers", "dest.kafka.bootstrap.servers"),
        *("src.consumer.group.id", "src.kafka.ssl.truststore.password"),
    }
    for key in example[0]["config"]:
        if key in usual:
            continue
        config = {name: value for name, value in example[0]["config"].items() if name != key}
        changed = convert([("x", json.dumps([example[0] | {"config": config}, example[1]]))], "x")
        facts = (changed.topology, {one.address for one in changed.notes})
        assert facts != (whole.topology, {one.address for one in whole.notes}), key

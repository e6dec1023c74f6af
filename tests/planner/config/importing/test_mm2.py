"""MirrorMaker 2's keys → flows; what has no counterpart is told, and no secret is copied."""

from pathlib import Path

import pytest

from planner.config import load
from planner.config.importing.connect import properties_of
from planner.config.importing.document import ConvertedTopology
from planner.config.importing.mm2 import convert
from planner.model.diagnostic import Failure
from planner.model.topology import Flow
from planner.render.topology import topology_yaml
from runtime.contract.spec.flow import ConfigsSpec, Earliest, Latest
from runtime.contract.spec.rename import Template

PACKAGE = "org.apache.kafka.connect.mirror"
BASE = "clusters = A, B\nA.bootstrap.servers = a:9092\nB.bootstrap.servers = b:9092\nA->B.enabled = true\n"


def converted(more: str = "") -> ConvertedTopology:
    return convert([("mm2.properties", BASE + more)], "mm2")


def flow(more: str = "") -> Flow:
    return converted(more).topology.flows["A-to-B"]


def reasons(more: str) -> dict[str, str]:
    return {one.address or "": one.summary for one in converted(more).notes}


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("a=1", {"a": "1"}),
        ("a : 1\nb 2\n", {"a": "1", "b": "2"}),
        ("# no\n! no\n\n  a = 1", {"a": "1"}),
        ("a = x, \\\n    y", {"a": "x, y"}),
        ("a = x\\\\\nb = 1", {"a": "x\\", "b": "1"}),
        ("a\\=b = \\u0041\\tz", {"a=b": "A\tz"}),
        ("a=1\na=2", {"a": "2"}),
        ("a", {"a": ""}),
        ("a = x \\", {"a": "x "}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, pairs: dict[str, str]) -> None:
    assert {key: value for key, (value, _) in properties_of(text).items()} == pairs


def test_mirror_makers_own_defaults_become_explicit() -> None:
    found = flow()
    assert found.topics.include == (".*",)
    assert found.topics.default_exclude
    assert found.rename == Template("{source}.{topic}")
    assert found.topics.exclude == (r"(.*\.)?B\..*",)  # B's own topics never travel home
    assert found.configs == ConfigsSpec("set")
    assert found.acls_sync
    assert not found.groups.sync
    assert found.start == Earliest()
    assert converted().notes == ()


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("A->B.topics = x, y.*", "topics.include", ("x", "y.*")),
        ("topics = z\nA->B.topics = x", "topics.include", ("x",)),
        (f"replication.policy.class = {PACKAGE}.IdentityReplicationPolicy", "rename.text", "{topic}"),
        ("replication.policy.separator = _", "rename.text", "{source}_{topic}"),
        ("sync.topic.configs.enabled = false", "configs.sync", "off"),
        ("replication.factor = 3", "replication", 3),
        ("replication.factor = 3\nA->B.replication.factor = 2", "replication", 2),
        ("replication.factor = -1", "replication", None),
        ("use.defaults.from = source", "configs.sync", "all"),
        (r"config.properties.blacklist = a\\.ms, min\\.insync\\.replicas", "configs.exclude", ("a.ms",)),
        ("sync.topic.acls.enabled = false", "acls_sync", False),
        ("sync.group.offsets.enabled = true", "groups.sync", True),
        ("sync.group.offsets.interval.seconds = 30", "groups.every_ms", 30_000),
        ("groups = g.*", "groups.include", ("g.*",)),
        ("groups.blacklist = tmp", "groups.default_exclude", False),
        ("emit.heartbeats.enabled = false", "heartbeats_every_ms", None),
        ("emit.heartbeats.interval.seconds = 5", "heartbeats_every_ms", 5_000),
        ("emit.checkpoints.interval.seconds = 10", "checkpoints_every_ms", 10_000),
        ("refresh.topics.enabled = false", "follow_every_ms", None),
        ("consumer.auto.offset.reset = latest", "start", Latest()),
        ("A.consumer.auto.offset.reset = latest", "start", Latest()),
        ("B.consumer.auto.offset.reset = latest", "start", Earliest()),
    ],
)  # fmt: skip
def test_a_key_and_what_becomes_of_it(line: str, field: str, value: object) -> None:
    found: object = flow(line)
    for name in field.split("."):
        found = getattr(found, name)
    assert found == value


def test_an_exclude_takes_the_place_of_the_default_denials() -> None:
    found = flow("topics.exclude = tmp.*").topics
    assert not found.default_exclude
    assert "tmp.*" in found.exclude
    same = flow("topics.exclude = .*[\\\\-\\\\.]internal, .*\\\\.replica, __.*, tmp.*").topics
    assert same.default_exclude
    assert same.exclude[0] == "tmp.*"


def test_slots_and_internal_replication() -> None:
    topology = converted(
        "tasks.max = 4\nA->B.tasks.max = 8\noffset-syncs.topic.replication.factor = 2\n"
        "checkpoints.topic.replication.factor = 3\nheartbeats.topic.replication.factor = -1"
    ).topology
    assert topology.jobs["B"].slots == 8
    assert topology.internal.replication == 3


def between(*flows: str) -> ConvertedTopology:
    """What becomes of flows between aliases, each written as `a->b`."""
    aliases = dict.fromkeys(alias for flow in flows for alias in flow.split("->"))
    text = f"clusters = {', '.join(aliases)}\n" + "".join(f"{flow}.enabled = true\n" for flow in flows)
    return convert([("f", text + "".join(f"{one}.bootstrap.servers = {one}:9092\n" for one in aliases))], "t")


@pytest.mark.parametrize(
    ("flows", "renames"),
    [
        # The name of the cluster changes, and never the names of its mirrors.
        (["eu.west->B"], {"eu_west": "eu.west.{topic}"}),
        (["_eu->B"], {"eu": "_eu.{topic}"}),
        (
            ["west.prod->B", "west_prod->B"],
            {"west_prod-2": "west.prod.{topic}", "west_prod": "{source}.{topic}"},
        ),
    ],
)
def test_an_alias_becomes_the_name_of_a_cluster(flows, renames, tmp_path: Path) -> None:
    found = between(*flows)
    file = tmp_path / "topology.yaml"
    file.write_text(topology_yaml(found.topology))
    read = load(file).flows.values()
    assert {flow.source_cluster: flow.rename for flow in read} == {
        name: Template(text) for name, text in renames.items()
    }


def test_aliases_with_one_name_are_two_clusters_and_flows_with_one_name_are_refused() -> None:
    found = between("west.prod->B", "west_prod->B")
    assert found.topology.clusters["west_prod-2"].bootstrap == "west.prod:9092"
    assert "west.prod is west_prod-2" in str(found.notes)
    with pytest.raises(Failure, match="two flows of f would be called a-to-b-to-c"):
        between("a->b-to-c", "a-to-b->c")


def test_user_and_password_in_the_url_of_tokens_are_not_copied() -> None:
    found = converted("A.sasl.oauthbearer.token.endpoint.url = https://u:hunter2@idp/t?a=b@c")
    client = found.topology.clusters["A"].client
    assert client["sasl.oauthbearer.token.endpoint.url"] == "https://idp/t?a=b@c"
    assert "are not copied" in str(found.notes)
    assert "hunter2" not in repr(found)


SECRETS = (
    "A.sasl.jaas.config = org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="u" password="hunter2";\n'
    "A.ssl.key.password = hunter2\nA.ssl.keystore.password = hunter2\nA.ssl.truststore.password = hunter2\n"
    "A.ssl.keystore.key = hunter2\n"
)


def test_no_secret_is_copied_anywhere() -> None:
    found = converted(SECRETS)
    client = found.topology.clusters["A"].client
    assert client["sasl.username"] == "u"
    assert client["sasl.password"] == {"env": "A_SASL_PASSWORD"}
    assert client["ssl.key.password"] == {"env": "A_SSL_KEY_PASSWORD"}
    assert "hunter2" not in repr(found) + topology_yaml(found.topology)


@pytest.mark.parametrize(
    ("lines", "key", "value"),
    [
        ("security.protocol = SASL_SSL", "security.protocol", "SASL_SSL"),
        ("security.protocol = SSL\nA.security.protocol = SASL_SSL", "security.protocol", "SASL_SSL"),
        ("A.admin.sasl.mechanism = PLAIN", "sasl.mechanism", "PLAIN"),
        ("A.ssl.truststore.location = /x/trust.pem", "ssl.ca.location", "/x/trust.pem"),
        ("A.ssl.truststore.location = /x/t\nA.ssl.truststore.type = PEM", "ssl.ca.location", "/x/t"),
        ("A.ssl.truststore.location = /x/trust.jks", "ssl.truststore.location", "/x/trust.jks"),
        (
            "A.ssl.truststore.location = /x/t.p12\nA.ssl.truststore.password = changeit",
            "ssl.truststore.password",
            {"env": "A_SSL_TRUSTSTORE_PASSWORD"},
        ),
        ("A.ssl.keystore.location = /x/me.p12", "ssl.keystore.location", "/x/me.p12"),
        ("A.ssl.keystore.location = /x/me\nA.ssl.keystore.type = PEM", "ssl.key.location", "/x/me"),
        ("A.sasl.kerberos.service.name = kafka", "sasl.kerberos.service.name", "kafka"),
        ("A.ssl.endpoint.identification.algorithm =", "ssl.endpoint.identification.algorithm", "none"),
        ("A.ssl.key.password = ${env:KEY_PASSWORD}", "ssl.key.password", {"env": "KEY_PASSWORD"}),
        (
            "A.ssl.key.password = ${file:/etc/secrets:pw}",
            "ssl.key.password",
            {"env": "A_SSL_KEY_PASSWORD"},
        ),
    ],
)
def test_java_names_become_librdkafkas(lines: str, key: str, value: object) -> None:
    assert converted(lines).topology.clusters["A"].client[key] == value


def test_a_java_store_comes_with_the_command_that_converts_it() -> None:
    convert = "keytool -importkeystore -srckeystore /x/trust.jks -destkeystore /x/trust.jks.p12"
    key = "A.ssl.truststore.location"
    assert convert in reasons(f"{key} = /x/trust.jks")[key]
    assert (
        reasons(f"{key} = /x/trust.p12") == reasons(f"{key} = /x/trust\nA.ssl.truststore.type = PKCS12") == {}
    )


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("replication.factor = many", "no number of copies"),
        ("exactly.once.source.support = enabled", "exactly once"),
        ("offset-syncs.topic.location = target", "offset map"),
        ("B.producer.compression.type = zstd", "whole record batches"),
        ("A->B.offset.lag.max = 10", "exact"),
        ("B->A.topics = .*", "not enabled"),
        ("A->C.enabled = true", "not among clusters"),
        ("who.knows = 1", "no counterpart"),
        ("replication.policy.class = com.example.Mine", "code of its own"),
        ("topic.filter.class = com.example.Mine", "include and exclude"),
        ("topics = \\\\p{Alpha}+", "regex of Java"),
        ("emit.heartbeats.interval.seconds = soon", "no number of seconds"),
        ("A.security.protocol = ${env:SECRET}", "write it out"),
        ("A.sasl.kerberos.kinit.cmd = /usr/bin/kinit", "with the keytab"),
        ("A.sasl.jaas.config = com.example.MyLoginModule required;", "MyLoginModule"),
        ('A.sasl.jaas.config = a.b.IAMLoginModule required awsProfileName="ops";', "AWS_PROFILE"),
        ('A.sasl.jaas.config = a.b.IAMLoginModule required awsStsRegion="us-east-1";', "cluster's region"),
        ('A.sasl.jaas.config = a.b.IAMLoginModule required awsRoleArn="${env:ROLE}";', "write it out"),
    ],
)
def test_a_key_without_counterpart_is_told_with_its_reason(line: str, reason: str) -> None:
    key = line.partition(" =")[0]
    assert reason in reasons(line)[key]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a = b", "names no clusters"),
        ("clusters = A\nA.enabled = true", "does not say where cluster A is"),
        (BASE.replace("A->B.enabled = true", ""), "no flow is enabled"),
    ],
)
def test_what_is_no_configuration_is_an_error(text: str, why: str) -> None:
    with pytest.raises(Failure, match=why):
        convert([("mm2.properties", text)], "mm2")


def test_an_oauth_login() -> None:
    found = converted(
        "A.sasl.jaas.config = a.b.OAuthBearerLoginModule required clientId='me' "
        'clientSecret="hunter2" scope=kafka;\nA.sasl.oauthbearer.token.endpoint.url = https://idp/token'
    )
    assert found.topology.clusters["A"].client == {
        "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.client.secret": {"env": "A_SASL_OAUTHBEARER_CLIENT_SECRET"},
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.scope": "kafka",
        "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
    }


KERBEROS = """\
A.security.protocol = SASL_SSL
A.sasl.mechanism = GSSAPI
A.sasl.kerberos.service.name = kafka
A.sasl.jaas.config = com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true \
  keyTab="/etc/mm2.keytab" principal="mm2@EXAMPLE.ORG";
"""
IAM = """\
A.security.protocol = SASL_SSL
A.sasl.mechanism = AWS_MSK_IAM
A.sasl.jaas.config = software.amazon.msk.auth.iam.IAMLoginModule required \
  awsRoleArn="arn:aws:iam::123456789012:role/copy" awsRoleSessionName="mm2";
A.sasl.client.callback.handler.class = software.amazon.msk.auth.iam.IAMClientCallbackHandler
"""
IAM_BEARER = """\
A.security.protocol = SASL_SSL
A.sasl.mechanism = OAUTHBEARER
A.sasl.jaas.config = org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required \
  awsRoleArn="arn:aws:iam::1:role/x";
A.sasl.login.callback.handler.class = software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler
"""


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            KERBEROS,
            {
                "sasl.mechanism": "GSSAPI",
                "sasl.kerberos.keytab": "/etc/mm2.keytab",
                "sasl.kerberos.principal": "mm2@EXAMPLE.ORG",
                "sasl.kerberos.service.name": "kafka",
            },
        ),
        (
            IAM,
            {
                "sasl.mechanism": "AWS_MSK_IAM",
                "sasl.aws.role.arn": "arn:aws:iam::123456789012:role/copy",
                "sasl.aws.role.session.name": "mm2",
            },
        ),
        (IAM_BEARER, {"sasl.mechanism": "AWS_MSK_IAM", "sasl.aws.role.arn": "arn:aws:iam::1:role/x"}),
    ],
    ids=["Kerberos", "IAM", "IAM by OAUTHBEARER"],
)
def test_a_login_of_an_own_module_becomes_keys(lines: str, expected: dict[str, str]) -> None:
    found = converted(lines)
    assert found.topology.clusters["A"].client == expected | {"security.protocol": "SASL_SSL"}
    assert reasons(lines) == {}


def test_a_login_that_makes_no_sense_is_told_and_not_repeated() -> None:
    found = converted("A.sasl.jaas.config = hunter2")
    assert "no login configuration" in found.notes[0].summary
    assert "hunter2" not in repr(found)

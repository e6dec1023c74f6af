"""What other tools keep → a topology: topics, ACLs and flows, with a note on the rest, and never a secret.

The files have the shape that each tool documents; they were written for these tests.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from planner.config import load
from planner.config.importing import (
    document,
    jikkou,
    msk_replicator,
    redpanda_migrator,
    strimzi,
    terraform,
    topicctl,
)
from planner.config.importing.document import ConvertedTopology
from planner.config.importing.readers import READERS
from planner.model.diagnostic import Failure
from planner.model.topology import Selection
from planner.render.topology import topology_yaml
from runtime.contract.spec.flow import GroupsSpec
from runtime.contract.spec.rename import Template
from runtime.contract.spec.selection import regex
from tests.fakes.golden import agreed

FILES, GOLDEN = Path(__file__).with_name("examples"), Path(__file__).with_name("golden")


def noted(converted: ConvertedTopology) -> dict[str, str]:
    return {note.address or "": note.summary for note in converted.notes}


@pytest.mark.parametrize(
    ("option", "name"),
    [
        ("strimzi", "strimzi.yaml"),
        ("terraform", "terraform.tfstate"),
        ("terraform", "terraform-plan.json"),
        ("topicctl", "topicctl"),
        ("jikkou", "jikkou"),
        ("msk-replicator", "replicator.json"),
        ("msk-replicator", "cloudformation.yaml"),
        ("redpanda-migrator", "migrator.yaml"),
    ],
)
def test_what_is_written_is_a_topology_without_a_secret(option: str, name: str, tmp_path: Path) -> None:
    """golden/ holds what is written, to the letter."""
    converted = READERS[option].read([FILES / name], "test")
    text = topology_yaml(
        converted.topology, (), [f"{note.address}: {note.summary}" for note in converted.notes]
    )
    agreed(GOLDEN / f"{option}-{Path(name).stem}.yaml", text)
    (tmp_path / "topology.yaml").write_text(text)
    loaded = load(tmp_path / "topology.yaml")
    assert loaded.clusters.keys() == converted.topology.clusters.keys()
    assert {(topic.cluster, topic.name) for topic in loaded.topics} == {
        (topic.cluster, topic.name) for topic in converted.topology.topics
    }
    assert loaded.flows.keys() == converted.topology.flows.keys()
    for secret in ("w:ord", "KEYKEYKEY"):
        assert secret not in text


def test_a_note_names_the_line_of_its_key() -> None:
    notes = READERS["strimzi"].read([FILES / "strimzi.yaml"], "test").notes
    (place,) = (note.source for note in notes if str(note.address).endswith("unheard.of"))
    assert place is not None
    line = (FILES / "strimzi.yaml").read_text().splitlines()[place.line - 1]
    assert line.strip() == "some.thing.unheard.of: 1"


DEEP = "[" * 100_000


@pytest.mark.parametrize(
    "option", ["strimzi", "terraform", "topicctl", "jikkou", "msk-replicator", "redpanda-migrator"]
)
@pytest.mark.parametrize(
    "text",
    [
        "",
        "a: b",
        "[]",
        "{}",
        "42",
        "{",
        '{"a": ' + DEEP,
        DEEP,
        "- - -",
        "a: &a [*a]",
        "\x00",
        '{"resources": 7, "version": 4}',
    ],
)
def test_what_is_of_no_such_tool(option: str, text: str) -> None:
    with pytest.raises(Failure):
        READERS[option].convert([("file", text)], "test")


def test_a_document_has_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "_MAX_NODES", 10)
    with pytest.raises(Failure, match="holds more than 10 values"):
        terraform.convert([("f", '{"resources": [1, 2, 3, 4, 5, 6, 7, 8, 9]}')], "test")
    monkeypatch.setattr(document, "_MAX_TEXT", 10)
    with pytest.raises(Failure, match="has more than"):
        terraform.convert([("f", '{"resources": []}')], "test")


def test_a_key_is_no_way_into_the_topology() -> None:
    """Keys of the file stand in its comments."""
    text = 'meta: {name: ok, cluster: c, "x\\nflows: [evil]\\e[2J": 1}\nspec: {partitions: 1}'
    converted = topicctl.convert([("t.yaml", text)], "test")
    written = topology_yaml(
        converted.topology, (), [f"{note.address}: {note.summary}" for note in converted.notes]
    )
    assert "\nflows" not in written
    assert "\x1b" not in written


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_folder_is_read_without_links(kind: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "secret.yaml").write_text("meta: {name: x}")
    if kind == "link":
        (tmp_path / "folder" / "a.yaml").symlink_to(tmp_path / "secret.yaml")
    else:
        import os

        os.mkfifo(tmp_path / "folder" / "a.yaml")
    with pytest.raises(Failure, match="holds no file"):
        READERS["topicctl"].read([tmp_path / "folder"], "test")


def test_a_template_of_jikkou_is_to_be_rendered_first() -> None:
    with pytest.raises(Failure, match="is a template of Jinja"):
        jikkou.convert([("t.yaml", "kind: KafkaTopic\nmetadata: {name: '{{ values.name }}'}")], "test")


def test_a_name_that_no_topic_has_is_left_out() -> None:
    bad = 'meta: {name: "a\\e[2Jb", cluster: c}\nspec: {partitions: 1}'
    text = f"{bad}\n---\nmeta: {{name: ok, cluster: c}}\nspec: {{partitions: x}}"
    converted = topicctl.convert([("t.yaml", text)], "test")
    assert [topic.name for topic in converted.topology.topics] == ["ok"]
    assert {"it is no name of a topic: the topic is left out", "it is no number"} <= {
        note.summary for note in converted.notes
    }


def migrator(read: str, write: str = "") -> ConvertedTopology:
    text = f"""
input: {{redpanda_migrator: {{seed_brokers: ["a.x:1"], {read}}}}}
output: {{redpanda_migrator: {{seed_brokers: ["b.x:1"], {write}}}}}
"""
    return redpanda_migrator.convert([("m.yaml", text)], "test")


@pytest.mark.parametrize(
    ("pattern", "whole"),
    [
        ("^a.*$", "a.*"),
        ("a", ".*a.*"),
        ("^a", "a.*"),
        ("a$", ".*a"),
        (r"a\$", r".*a\$.*"),
        ("orders|pay", ".*(?:orders|pay).*"),
        ("^a|b$", ".*(?:^a|b$).*"),
    ],
)
def test_a_regex_of_go_matches_a_part(pattern: str, whole: str) -> None:
    read = f"topics: ['{pattern}'], regexp_topics: true, regexp_topics_exclude: ['{pattern}']"
    (flow,) = migrator(read).topology.flows.values()
    assert flow.topics == Selection((whole,), (whole,))


@pytest.mark.parametrize("name", ["orders", "my-orders-2", "pay"])
@pytest.mark.parametrize("pattern", ["orders|pay", "^orders|s-2$|pay", "^(orders|pay)$"])
def test_a_regex_of_go_and_ours_match_the_same_names(pattern: str, name: str) -> None:
    (flow,) = migrator(f"topics: ['{pattern}'], regexp_topics: true").topology.flows.values()
    assert regex(flow.topics.include[0]).matches(name) == bool(re.search(pattern, name))


@pytest.mark.parametrize(
    ("written", "groups", "acls"),
    [
        ("", GroupsSpec(), False),
        ("consumer_groups: false", GroupsSpec(sync=False), False),
        ("consumer_groups: {enabled: false}", GroupsSpec(sync=False), False),
        ("consumer_groups: {include: [^a, b|c]}", GroupsSpec(("a.*", ".*(?:b|c).*")), False),
        ("consumer_groups: {exclude: [tmp]}", GroupsSpec(exclude=(".*tmp.*",)), False),
        ("sync_topic_acls: true", GroupsSpec(), True),
    ],
)
def test_what_the_migrator_brings_besides_records(written: str, groups: GroupsSpec, acls: bool) -> None:
    converted = migrator("topics: [a]", written)
    (flow,) = converted.topology.flows.values()
    assert (flow.groups, flow.acls_sync) == (groups, acls)
    assert ("allows WRITE is never mirrored" in str(converted.notes)) == acls


CLUSTER = """
meta: {{name: kafka, environment: {env}, region: r1}}
spec: {{bootstrapAddrs: ["{env}-1:9092"]}}
"""
TOPIC = """
meta: {{name: orders, cluster: kafka{more}}}
spec: {{partitions: {partitions}, replicationFactor: 1}}
"""


def test_clusters_of_topicctl_with_one_name_stay_apart() -> None:
    files = [
        ("prod/cluster.yaml", CLUSTER.format(env="prod")),
        ("dev/cluster.yaml", CLUSTER.format(env="dev")),
        ("prod/o.yaml", TOPIC.format(more=", environment: prod, region: r1", partitions=48)),
        ("dev/o.yaml", TOPIC.format(more=", environment: dev, region: r1", partitions=1)),
    ]
    converted = topicctl.convert(files, "test")
    clusters = converted.topology.clusters
    assert {topic.cluster: topic.partitions for topic in converted.topology.topics} == {
        "kafka": 48,
        "kafka-dev-r1": 1,
    }
    assert (clusters["kafka"].bootstrap, clusters["kafka-dev-r1"].bootstrap) == ("prod-1:9092", "dev-1:9092")
    assert "another cluster has the name kafka already" in noted(converted)["kafka-dev-r1"]

    with pytest.raises(Failure, match="2 clusters are called kafka"):
        topicctl.convert([*files, ("o.yaml", TOPIC.format(more="", partitions=1))], "test")
    with pytest.raises(Failure, match="cluster kafka is declared twice"):
        topicctl.convert([files[0], ("b.yaml", files[0][1].replace("prod-1", "prod-2"))], "test")
    twice = ("p.yaml", TOPIC.format(more=", environment: prod, region: r1", partitions=3))
    with pytest.raises(Failure, match="topic orders of cluster kafka is declared twice"):
        topicctl.convert([*files, twice], "test")


def test_a_topic_of_topicctl_may_leave_out_the_environment_of_the_only_cluster() -> None:
    files = [("c.yaml", CLUSTER.format(env="prod")), ("o.yaml", TOPIC.format(more="", partitions=3))]
    (cluster,) = topicctl.convert(files, "test").topology.clusters.values()
    assert cluster.bootstrap == "prod-1:9092"


def state(provider: str, partitions: int, module: str = "") -> dict[str, Any]:
    values = {"name": "orders", "partitions": partitions, "replication_factor": 1}
    kind = {"module": module, "mode": "managed", "type": "kafka_topic", "name": "t", "provider": provider}
    return kind | {"instances": [{"attributes": values}]}


def terraform_topics(*files: tuple[str, Any]) -> dict[str, int | None]:
    converted = terraform.convert([(name, json.dumps(content)) for name, content in files], "test")
    return {topic.cluster: topic.partitions for topic in converted.topology.topics}


PROVIDER = 'provider["registry.terraform.io/mongey/kafka"]'


def test_providers_of_terraform_stay_apart() -> None:
    own = [
        state(PROVIDER, 1),
        state(f"{PROVIDER}.east", 2),
        state(f"module.a.{PROVIDER}", 3, "module.a"),
        state(f"module.b.{PROVIDER}.east", 4, "module.b"),
    ]
    assert terraform_topics(("s.tfstate", {"version": 4, "resources": own})) == {
        "kafka": 1,
        "east": 2,
        "kafka-a": 3,
        "east-b": 4,
    }
    files = [(f"{name}.tfstate", {"resources": [state(PROVIDER, at)]}) for at, name in enumerate("abc", 1)]
    assert terraform_topics(*files) == {"kafka": 1, "kafka-b": 2, "kafka-c": 3}
    with pytest.raises(Failure, match="topic orders of cluster kafka is declared twice"):
        terraform_topics(("s.tfstate", {"resources": [state(PROVIDER, 1), state(PROVIDER, 2)]}))


def test_a_plan_of_terraform_names_its_providers() -> None:
    def topic(address: str, partitions: int) -> dict[str, Any]:
        values = {"name": "orders", "partitions": partitions}
        return {"address": address, "mode": "managed", "type": "kafka_topic", "values": values}

    def provider(address: str, **alias: str) -> dict[str, Any]:
        return {"name": "kafka", **alias, "expressions": {"bootstrap_servers": {"constant_value": [address]}}}

    def of_provider(address: str, key: str) -> dict[str, Any]:
        return {"address": address, "provider_config_key": key}

    child = {"address": "module.m", "resources": [topic('module.m.kafka_topic.t["x"]', 3)]}
    planned = {
        "resources": [topic("kafka_topic.w", 1), topic("kafka_topic.e", 2)],
        "child_modules": [child],
    }
    providers = {
        "kafka": provider("w:9092"),
        "kafka.east": provider("e:9092", alias="east"),
        "module.m:kafka": provider("m:9092"),
    }
    configured = {
        "resources": [of_provider("kafka_topic.w", "kafka"), of_provider("kafka_topic.e", "kafka.east")],
        "module_calls": {"m": {"module": {"resources": [of_provider("kafka_topic.t", "module.m:kafka")]}}},
    }
    plan = {
        "planned_values": {"root_module": planned},
        "configuration": {"provider_config": providers, "root_module": configured},
    }
    converted = terraform.convert([("plan.json", json.dumps(plan))], "test")
    clusters = converted.topology.clusters
    assert {clusters[topic.cluster].bootstrap: topic.partitions for topic in converted.topology.topics} == {
        "w:9092": 1,
        "e:9092": 2,
        "m:9092": 3,
    }
    assert clusters.keys() == {"kafka", "east", "kafka-m"}


def test_what_terraform_prints_of_a_state_has_no_provider() -> None:
    def module(partitions: int) -> dict[str, Any]:
        return {
            "resources": [
                {"type": "kafka_topic", "values": {"name": "orders", "partitions": partitions}},
            ]
        }

    root = module(1) | {"child_modules": [module(2) | {"address": "module.m"}]}
    text = json.dumps({"values": {"root_module": root}})
    converted = terraform.convert([("show.json", text)], "test")
    assert [(topic.cluster, topic.partitions) for topic in converted.topology.topics] == [
        ("kafka", 1),
        ("kafka-m", 2),
    ]
    assert "terraform.tfstate names the provider" in noted(converted)["values"]


def test_two_files_of_the_migrator_are_two_flows() -> None:
    def file(number: int) -> tuple[str, str]:
        ends = [f'redpanda_migrator: {{seed_brokers: ["10.{end}.0.{number}:9092"]}}' for end in (1, 2)]
        return f"{number}.yaml", f"input: {{{ends[0]}}}\noutput: {{{ends[1]}}}"

    converted = redpanda_migrator.convert([file(1), file(2)], "test")
    assert [(flow.name, flow.source_cluster) for flow in converted.topology.flows.values()] == [
        ("source-to-destination", "source"),
        ("source-2-to-destination-2", "source-2"),
    ]
    converted = redpanda_migrator.convert([file(1), file(1)], "test")
    assert converted.topology.flows.keys() == {"source-to-destination", "source-to-destination-2"}
    assert "another flow has the name" in noted(converted)["source-to-destination-2"]


def test_hosts_of_the_migrator_that_begin_alike_are_two_clusters() -> None:
    text = """
input: {redpanda_migrator: {seed_brokers: ["kafka-1.dc1:9092"]}}
output: {redpanda_migrator: {seed_brokers: ["kafka-1.dc2:9092"]}}
"""
    (flow,) = redpanda_migrator.convert([("m.yaml", text)], "test").topology.flows.values()
    assert (flow.source_cluster, flow.destination_cluster) == ("kafka-1", "kafka-1_dc2")


def replicator(*regions: str, name: str = "shop", aliases: tuple[str, str] = ("", "")) -> str:
    arns = [f"arn:aws:kafka:{region}:1:cluster/prod/{at}" for at, region in enumerate(regions)]
    clusters = [
        {"AmazonMskCluster": {"MskClusterArn": arn}} | ({"KafkaClusterAlias": alias} if alias else {})
        for arn, alias in zip(arns, aliases, strict=True)
    ]
    ends = dict(zip(("SourceKafkaClusterArn", "TargetKafkaClusterArn"), arns, strict=True))
    named = {"SourceKafkaClusterAlias": aliases[0]} if aliases[0] else {}
    copies = [ends | named | {"TopicReplication": {"TopicsToReplicate": ["a"]}}]
    return json.dumps({"ReplicatorName": name, "KafkaClusters": clusters, "ReplicationInfoList": copies})


def test_replicators_and_clusters_of_msk_with_one_name_stay_apart() -> None:
    files = [("a", replicator("us-1", "us-2")), ("b", replicator("eu-1", "eu-2"))]
    flows = msk_replicator.convert(files, "test").topology.flows
    assert {name: (flow.source_cluster, flow.destination_cluster) for name, flow in flows.items()} == {
        "shop": ("prod", "prod-us-2"),
        "shop-2": ("prod-eu-1", "prod-eu-2"),
    }
    files = [(at, replicator(at, "z", name=at, aliases=("src", f"dst-{at}"))) for at in ("x", "y")]
    flows = msk_replicator.convert(files, "test").topology.flows
    assert (flows["y"].source_cluster, flows["y"].rename) == ("src-y", Template("src.{topic}"))


@pytest.mark.parametrize(
    "value",
    ["TopicsToExclude: [!Ref Out]", "TopicsToExclude: [{Ref: Out}]", "CopyTopicConfigurations: !Ref Copy"],
)
def test_a_function_of_cloudformation_chooses_no_topic(value: str) -> None:
    text = (FILES / "cloudformation.yaml").read_text()
    text = text.replace('TopicsToReplicate: [".*"]', f'TopicsToReplicate: [".*"], {value}')
    with pytest.raises(Failure, match="a function of CloudFormation says what TopicReplication is"):
        msk_replicator.convert([("c.yaml", text)], "test")


def test_functions_of_cloudformation_in_their_long_form_name_clusters() -> None:
    text = re.sub(
        r"!GetAtt (Primary|Standby)\.Arn",
        r'{"Fn::GetAtt": [\1, Arn]}',
        (FILES / "cloudformation.yaml").read_text(),
    )
    (flow,) = msk_replicator.convert([("c.yaml", text)], "test").topology.flows.values()
    assert (flow.source_cluster, flow.destination_cluster) == ("Primary", "Standby")


@pytest.mark.parametrize(
    ("read", "include", "reason"),
    [
        ("topics: ['a,b', c.d]", ("a", "b", r"c\.d"), None),
        ("topics: ['a:0-3', 'b:0:7']", ("a", "b"), "a flow copies every partition"),
        ("topics: ['^a{1,2}$'], regexp_topics: true", ("a{1,2}",), None),
    ],
)
def test_topics_of_the_migrator(read: str, include: tuple[str, ...], reason: str | None) -> None:
    converted = migrator(read)
    (flow,) = converted.topology.flows.values()
    assert flow.topics.include == include
    assert ("input.redpanda_migrator.topics" in noted(converted)) == (reason is not None)
    assert (reason or "") in noted(converted).get("input.redpanda_migrator.topics", "")


def test_tls_of_the_migrator() -> None:
    tls = "{enabled: true, root_cas_file: ca.pem, skip_cert_verify: true, odd: 1,"
    tls += " client_certs: [{cert_file: c.pem, key_file: k.pem, password: w}]}"
    converted = migrator(f"topics: [a], tls: {tls}")
    assert converted.topology.clusters["a"].client == {
        "security.protocol": "SSL",
        "ssl.ca.location": "ca.pem",
        "ssl.certificate.location": "c.pem",
        "ssl.key.location": "k.pem",
    }
    path = "input.redpanda_migrator.tls"
    assert {f"{path}.skip_cert_verify", f"{path}.odd", f"{path}.client_certs[0].password"} <= noted(
        converted
    ).keys()


def test_a_login_by_iam_and_certificates_of_topicctl() -> None:
    text = CLUSTER.format(env="$ADDRESS").rstrip()[:-1] + (
        ", tls: {enabled: true, caCertPath: ca.pem, certPath: c.pem, keyPath: k.pem},"
        " sasl: {enabled: true, mechanism: AWS-MSK-IAM}}"
    )
    topic = TOPIC.format(more="", partitions="1, settings: {a: {b: c}}")
    converted = topicctl.convert([("c.yaml", text), ("t.yaml", topic)], "test")
    (cluster,) = converted.topology.clusters.values()
    assert cluster.bootstrap == "kafka.invalid:9092"
    assert cluster.client == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "AWS_MSK_IAM",
        "ssl.ca.location": "ca.pem",
        "ssl.certificate.location": "c.pem",
        "ssl.key.location": "k.pem",
    }
    assert "it is a map" in noted(converted)["spec.settings.a"]


@pytest.mark.parametrize(
    ("login", "mechanism"),
    [
        ("{type: oauth, clientId: me, tokenEndpointUri: 'https://u:w-ord@idp/t'}", "OAUTHBEARER"),
        ("{type: custom, sasl: true, config: {sasl.mechanism: GSSAPI}}", "GSSAPI"),
        ("{type: custom, sasl: false}", None),
    ],
)
def test_other_logins_of_strimzi(login: str, mechanism: str | None) -> None:
    text = STRIMZI.replace('"b:9092"', f'"b:9092", tls: {{}}, authentication: {login}')
    client = strimzi.convert([("m.yaml", text)], "test").topology.clusters["b"].client
    assert client.get("sasl.mechanism") == mechanism
    assert client["security.protocol"] == ("SASL_SSL" if mechanism else "SSL")
    assert client.get("sasl.oauthbearer.token.endpoint.url") in (None, "https://idp/t")
    assert "w-ord" not in str(client)


@pytest.mark.parametrize("text", ['{"a\\ud800": 1}', '{"resources": ["\\udfff"]}'])
def test_half_of_a_surrogate_pair_is_refused(text: str) -> None:
    with pytest.raises(Failure, match="half of a surrogate pair"):
        terraform.convert([("s.json", text)], "test")


STRIMZI = """
kind: KafkaMirrorMaker2
spec:
  target: {alias: b, bootstrapServers: "b:9092"}
  mirrors:
    - source: {alias: a, bootstrapServers: "a:9092"}
      sourceConnector: {config: {topics: x, topics.exclude: kept, replication.policy.separator: "-"}}
      checkpointConnector: {config: {replication.policy.separator: "_", groups: g}}
      topicsPattern: orders
      groupsPattern: billing
"""


def test_strimzis_newer_resource_has_its_clusters_at_the_mirrors() -> None:
    plain = STRIMZI.replace(', replication.policy.separator: "-"', "").replace("checkpointConnector", "other")
    topology = strimzi.convert([("m.yaml", plain)], "test").topology
    (flow,) = topology.flows.values()
    assert (flow.name, flow.rename) == ("a-to-b", Template("{source}.{topic}"))
    assert flow.checkpoints_every_ms is None
    assert topology.clusters["b"].bootstrap == "b:9092"


def test_a_pattern_of_strimzis_mirror_comes_before_its_connectors() -> None:
    converted = strimzi.convert([("m.yaml", STRIMZI)], "test")
    (flow,) = converted.topology.flows.values()
    assert (flow.topics.include, flow.groups.include) == (("orders",), ("billing",))
    assert "kept" in flow.topics.exclude
    assert flow.rename == Template("{source}-{topic}")
    key = "spec.mirrors[0].sourceConnector.config.topics"
    assert noted(converted)[key] == "the pattern of the mirror takes its place"


def test_strimzis_mirrors_that_are_no_flow() -> None:
    more = '    - source: {alias: c, bootstrapServers: "c:9092"}\n      heartbeatConnector: {}\n'
    converted = strimzi.convert([("m.yaml", STRIMZI + more)], "test")
    assert converted.topology.flows.keys() == {"a-to-b"}
    assert "copies no record from c" in noted(converted)["spec.mirrors[1].sourceConnector"]
    with pytest.raises(Failure, match=r"no mirror of m\.yaml has a sourceConnector"):
        strimzi.convert([("m.yaml", STRIMZI.replace("sourceConnector", "other"))], "test")
    twice = STRIMZI + STRIMZI[STRIMZI.index("    - source") :]
    with pytest.raises(Failure, match="two mirrors copy a->b"):
        strimzi.convert([("m.yaml", twice)], "test")
    with pytest.raises(Failure, match="two clusters have the alias b"):
        strimzi.convert([("m.yaml", STRIMZI + more.replace("alias: c", "alias: b"))], "test")

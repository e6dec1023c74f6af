"""File endpoints, and the flows that go to them, as far as their text goes."""

from pathlib import Path

import pytest

from planner.model.topology import Compaction, FileEndpoint, FileFormat, SecretRef, StartAt
from runtime.contract.spec.files import SUPPORTED
from tests.planner.config.given import loaded, mistakes

ENDPOINT = "endpoints:\n  lake: {file: /data/lake, format: raw}\n"
FLOW = "flows:\n  - {name: f, from: dc1, to: lake, topics: {include: [orders]}%s}\n"


def test_a_flow_to_an_endpoint_is_no_flow_between_clusters(tmp_path: Path) -> None:
    found = loaded(tmp_path, ENDPOINT + FLOW % ", every: 5s")
    assert found.flows == {}
    flow = found.file_flows["f"]
    assert (flow.destination_cluster, flow.every_ms, flow.job) == ("lake", 5_000, "lake")
    assert found.job_flows["f"].destination_cluster == "dc1"
    endpoint = found.endpoints["lake"]
    assert (endpoint.folder, endpoint.format, endpoint.layout) == ("/data/lake", FileFormat.RAW, "{topic}/")


def test_defaults_of_flows_reach_it_where_it_has_the_key(tmp_path: Path) -> None:
    defaults = "defaults: {flow: {start: latest, rename: 'x.{topic}', groups: {sync: true}}}\n"
    assert loaded(tmp_path, defaults + ENDPOINT + FLOW % "").file_flows["f"].start == StartAt("latest")


@pytest.mark.parametrize(("size", "bytes_"), [("64k", 1 << 16), ("128m", 128 << 20), ("2GB", 2 << 30)])
def test_sizes(size: str, bytes_: int) -> None:
    assert FileEndpoint("lake", "/x", size=size).size_bytes == bytes_


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        (
            "{file: 'gs://bucket/k'}",
            f"gs:// is not supported — {SUPPORTED}",
        ),
        ("{file: 'abfs://c@account/k'}", "abfs:// is not supported — supported are a bucket"),
        ("{file: 'hdfs://namenode/k'}", "hdfs:// is not supported — supported are a bucket"),
        ("{file: 'https://host/k'}", "https:// is not supported — supported are a bucket"),
        ("{file: 'file:///data'}", "file:// is not supported — supported are a bucket"),
        ("{file: 's3a://b/k'}", "s3a://b/k names no bucket — write s3a://bucket/prefix"),
        ("{file: 's3a:///k'}", "names no bucket"),
        ("{file: 's3://user@bucket'}", "names no bucket"),
        ("{file: 's3a://bucket/a//b'}", 'has a part "" that is not allowed'),
        ("{file: 's3a://bucket/../b'}", 'has a part ".." that is not allowed'),
        ("{file: 's3a://bucket', size: 5g}", "size is from 64k to 4g in an object store"),
        ("{file: /d, client: {region: eu-1}}", "/d is a folder, and client is for an object store"),
        (
            "{file: 's3a://bucket', client: {regoin: x}}",
            '"regoin" is no setting of an object store — it takes region',
        ),
        ("{file: 's3a://bucket', client: {region: 'a/b'}}", "client.region is no region"),
        ("{file: 's3a://bucket', client: {region: {env: A}}}", '"region" takes no reference'),
        ("{file: 's3a://bucket', client: {endpoint: 's3.org'}}", "client.endpoint is no web address"),
        (
            "{file: 's3a://bucket', client: {endpoint: 'https://u:p@s3.org'}}",
            "client.endpoint is no web address",
        ),
        (
            "{file: 's3a://bucket', client: {endpoint: 'https://s3.org/path'}}",
            "client.endpoint is no web address",
        ),
        (
            "{file: 's3a://bucket', client: {access.key: A}}",
            "needs the other one of access.key and secret.key",
        ),
        (
            "{file: 's3a://bucket', client: {session.token: {env: A}}}",
            "client.session.token belongs to access.key",
        ),
        (
            "{file: 's3a://bucket', client: {access.key: A, secret.key: hidden}}",
            "client.secret.key stands in the topology as plain text — refer to it: secret.key: {env:",
        ),
        (
            "{file: 's3a://bucket', client: {ssl.ca.location: ca.pem}}",
            "client.ssl.ca.location is a relative path",
        ),
        ("{file: data/lake}", "data/lake is no absolute path"),
        ("{file: /data/../etc}", "/data/../etc does not name a folder of its own"),
        ("{file: /}", "/ does not name a folder of its own"),
        ("{file: /d, layout: '../{topic}'}", '".." in the layout "../{topic}" begins with .'),
        ("{file: /d, layout: '/{topic}'}", "is no relative path"),
        ("{file: /d, layout: 'a//{topic}'}", "is no relative path"),
        ("{file: /d, layout: '{topic}/{day}'}", "has {day} — known are {topic}, {partition}, {date}, {hour}"),
        ("{file: /d, layout: 'all/'}", "does not name {topic} once"),
        ("{file: /d, layout: '_a/{topic}'}", "begins with _"),
        ("{file: /d, layout: 'a b/{topic}'}", "a sign that is not allowed"),
        ("{file: /d, layout: 'a-long-prefix-{topic}'}", "too long for a long topic name"),
        ("{file: /d, format: raw, layout: '{topic}/{hour}'}", "raw files hold whole batches"),
        ("{file: /d, size: 1k}", "size is from 64k to 1t"),
        ("{file: /d, format: avro}", "avro"),
        ("{file: /d, format: json, snapshots: 1h}", "only the format raw has snapshots"),
        ("{file: /d, format: raw, snapshots: 100ms}", "snapshots is from 1s to 24h"),
        ("{file: /d, compact: {below: 256m}}", "compact.below is 256m, and files are closed at 128m"),
        ("{file: /d, compact: {below: 1k}}", "compact.below is from 64k to 1t"),
        ("{file: /d, compact: {every: 10ms}}", "compact.every is from 1s to 30d"),
        ("{file: /d, compact: {retention: 90d}}", "compact.retention is from 1s to 30d"),
        ("{file: /d, compact: {smaller: 1m}}", "smaller"),
    ],
)
def test_an_endpoint_that_can_not_be_written(tmp_path: Path, endpoint: str, expected: str) -> None:
    (found,) = mistakes(tmp_path, f"endpoints:\n  lake: {endpoint}\n" + FLOW % "")
    assert expected in found


STORE = """endpoints:
  lake:
    {file: 's3://bucket/a/', format: raw,
     client: {region: eu-1, access.key: {env: K}, secret.key: {file: s.txt}}}
"""


def test_an_endpoint_in_an_object_store(tmp_path: Path) -> None:
    endpoint = loaded(tmp_path, STORE + FLOW % "").endpoints["lake"]
    assert endpoint.in_store
    assert endpoint.client["region"] == "eu-1"
    secret = endpoint.client["secret.key"]
    assert isinstance(secret, SecretRef)
    assert (secret.kind, secret.name) == ("file", "s.txt")
    assert "K" not in repr(endpoint)


def test_two_endpoints_are_never_one_prefix(tmp_path: Path) -> None:
    more = "  other: {file: 's3a://bucket/a'}\n"
    (found,) = mistakes(tmp_path, STORE + more + FLOW % "")
    assert "the endpoints lake and other are one folder" in found


def test_a_flow_reads_files_of_an_object_store_with_the_client_of_an_endpoint(tmp_path: Path) -> None:
    client = "client: {region: eu-1, access.key: {env: K}, secret.key: {file: s.txt}}"
    source = f"{{file: 's3://bucket/in/', format: json, {client}}}"
    found = loaded(tmp_path, f"flows:\n  - {{name: in, from: {source}, to: dc1, topics: {{to: inbox}}}}\n")
    endpoint = found.endpoints["in"]
    assert (endpoint.in_store, endpoint.read_format) == (True, "json")
    assert endpoint.client["access.key"] == SecretRef("env", "K", endpoint.client["access.key"].source)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{file: 'gs://bucket/in'}", f"gs:// is not supported — {SUPPORTED}"),
        ("{file: 'abfs://c@account/in'}", f"abfs:// is not supported — {SUPPORTED}"),
        ("{file: 'az://c/in'}", f"az:// is not supported — {SUPPORTED}"),
        (
            "{file: /data/in, client: {region: eu-1}}",
            "/data/in is a folder, and client is for an object store",
        ),
        (
            "{file: 's3a://bucket/in', client: {access.key: A, secret.key: hidden}}",
            "client.secret.key stands in the topology as plain text — refer to it: secret.key: {env:",
        ),
        ("{file: 's3a://bucket/in', client: {proxy: x}}", '"proxy" is no setting of an object store'),
    ],
)
def test_a_store_that_no_flow_can_read(tmp_path: Path, source: str, expected: str) -> None:
    flow = f"flows:\n  - {{name: in, from: {source}, to: dc1, topics: {{to: inbox}}}}\n"
    (found,) = mistakes(tmp_path, flow)
    assert expected in found
    assert "hidden" not in found


def test_small_files_are_merged_only_where_the_endpoint_says_so(tmp_path: Path) -> None:
    endpoint = "endpoints:\n  lake: {file: /d, format: json%s}\n"
    assert loaded(tmp_path, endpoint % "" + FLOW % "").endpoints["lake"].compact is None
    merges = loaded(tmp_path, endpoint % ", compact: {every: 30m}" + FLOW % "").endpoints["lake"].compact
    assert merges == Compaction(every_ms=1_800_000, below="16m", retention_ms=86_400_000)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (", rename: 'x.{topic}'", "flow f goes into files and has no rename"),
        (
            ", transform: {where: 'true'}",
            "flow f writes raw files, which hold record batches byte for byte, and has a transform",
        ),
        (", restart_from: earliest", "flow f goes into files and has no restart_from"),
        (", groups: {sync: true}", "flow f goes into files and has no groups"),
        (", state: promoted", "flow f goes into files and can't be promoted"),
        (", every: 10ms", "every is from 1s to 1d"),
    ],
)
def test_what_a_flow_into_files_does_not_have(tmp_path: Path, more: str, expected: str) -> None:
    (found,) = mistakes(tmp_path, ENDPOINT + FLOW % more)
    assert expected in found


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_a_flow_into_files_of_decoded_values_has_a_transform(tmp_path: Path, form: str) -> None:
    endpoint = f"endpoints:\n  lake: {{file: /data/lake, format: {form}}}\n"
    found = loaded(tmp_path, endpoint + FLOW % ", transform: {where: 'offset > 5'}").file_flows["f"]
    assert found.transform is not None
    assert found.transform.where == "offset > 5"
    more = ", transform: {where: 'true', on_bad_record: quarantine}"
    (refused,) = mistakes(tmp_path, endpoint + FLOW % more)
    assert "no topic takes the bad records of on_bad_record: quarantine" in refused
    assert "write on_bad_record: stop" in refused


def test_a_flow_between_clusters_has_no_interval_and_no_topic_for_lines(tmp_path: Path) -> None:
    flows = "flows:\n  - {name: f, from: dc1, to: dc2, topics: {include: [a], to: b}, every: 5s}\n"
    found = mistakes(tmp_path, flows)
    assert "flow f comes from a cluster and has no topics.to" in found[0]
    assert "flow f goes to a cluster and has no every" in found[1]


INBOX = "topics: [{name: inbox, cluster: dc1, partitions: 2}]\n"
LINES = "flows:\n  - {name: in, from: {file: ./in, format: json}, to: dc1, topics: {to: inbox}%s}\n"


def test_files_in_a_flow_become_an_endpoint_beside_the_topology(tmp_path: Path) -> None:
    found = loaded(tmp_path, INBOX + LINES % ", every: 2s")
    assert found.flows == {}
    flow, endpoint = found.file_flows["in"], found.endpoints["in"]
    assert (flow.source_cluster, flow.job, flow.topics.to, flow.every_ms) == ("in", "in", "inbox", 2_000)
    assert found.job_flows["in"].source_cluster == found.job_flows["in"].destination_cluster == "dc1"
    assert (endpoint.folder, endpoint.format) == (str(tmp_path / "in"), FileFormat.JSON)


def test_the_topic_that_takes_lines_need_not_be_declared(tmp_path: Path) -> None:
    """It gets the defaults of topics; one that is declared has its own keys."""
    found = loaded(tmp_path, "defaults: {topic: {partitions: 12}}\n" + LINES % "")
    assert [(one.cluster, one.name, one.partitions) for one in found.topics] == [("dc1", "inbox", 12)]
    declared = loaded(tmp_path, "defaults: {topic: {partitions: 12}}\n" + INBOX + LINES % "")
    assert [(one.cluster, one.name, one.partitions) for one in declared.topics] == [("dc1", "inbox", 2)]


def test_a_flow_may_name_the_endpoint_that_it_reads(tmp_path: Path) -> None:
    endpoint = "endpoints: {inbox: {file: /data/inbox, format: text}}\n"
    flows = "flows: [{name: in, from: inbox, to: dc1, topics: {to: inbox}}]\n"
    found = loaded(tmp_path, INBOX + endpoint + flows)
    assert (found.file_flows["in"].source_cluster, list(found.endpoints)) == ("inbox", ["inbox"])
    assert found.file_flows["in"].job == "inbox"


@pytest.mark.parametrize("form", ["text", "json", "parquet"])
def test_a_flow_reads_lines_of_text_or_json_or_rows_of_parquet(tmp_path: Path, form: str) -> None:
    found = loaded(tmp_path, INBOX + LINES.replace("json", form) % "")
    assert found.endpoints["in"].format == form


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (INBOX + LINES % ", start: latest", "flow in comes from files and has no start"),
        (INBOX + LINES % ", transform: {where: 'true'}", "flow in comes from files and has no transform"),
        (INBOX + LINES % ", state: promoted", "flow in comes from files and can't be promoted"),
        (
            INBOX + LINES.replace("{to:", "{exclude: [a], to:") % "",
            "flow in comes from files and selects no topics",
        ),
        (INBOX + LINES.replace("json", "raw") % "", '"format" is "raw", none of text, json or parquet'),
        (INBOX + LINES.replace("./in", "in") % "", "endpoint in: in is no absolute path"),
        (
            INBOX + "flows: [{name: in, from: {format: text}, to: dc1, topics: {to: inbox}}]\n",
            'without "file"',
        ),
        (
            "endpoints: {lake: {file: /d, format: text}}\n" + FLOW % "",
            "flows read the format text, and flow f writes",
        ),
        (
            INBOX + ENDPOINT + "flows: [{name: in, from: lake, to: dc1, topics: {to: inbox}}]\n",
            "flow in reads lines or rows, and the files of lake are raw",
        ),
        (
            INBOX + "endpoints: {a: {file: /d, format: json, size: 1m}}\n"
            "flows: [{name: in, from: a, to: dc1, topics: {to: inbox}}]\n",
            "endpoint a is read, and size is about files that are written",
        ),
        (
            "endpoints: {lake: {file: /d, recursive: true}}\n" + FLOW % "",
            "endpoint lake is written, and recursive is about files that are read — remove recursive",
        ),
        (
            "endpoints: {a: {file: /d, format: text, recursive: true}, lake: {file: /d/lake}}\n"
            + FLOW % ""
            + "  - {name: in, from: a, to: dc1, topics: {to: inbox}}\n",
            "endpoint a is read with its sub-folders, and the endpoint lake is one of them",
        ),
        (
            ENDPOINT
            + "  other: {file: /o}\nflows: [{name: f, from: other, to: lake, topics: {include: a}}]\n",
            '"other" and "lake" are both file endpoints',
        ),
    ],
)
def test_what_a_flow_from_files_does_not_have(tmp_path: Path, text: str, expected: str) -> None:
    assert any(expected in one for one in mistakes(tmp_path, text))


def test_sub_folders_are_read_where_the_endpoint_says_so(tmp_path: Path) -> None:
    text = INBOX + LINES.replace("format: json", "format: json, recursive: true") % ""
    assert loaded(tmp_path, text).endpoints["in"].recursive
    assert not loaded(tmp_path, INBOX + LINES % "").endpoints["in"].recursive


def test_an_endpoint_that_is_read_belongs_to_one_flow(tmp_path: Path) -> None:
    flows = [f"{{name: {name}, from: a, to: dc1, topics: {{to: inbox}}}}" for name in ("x", "y")]
    text = INBOX + "endpoints: {a: {file: /d, format: text}}\n" + f"flows: [{', '.join(flows)}]\n"
    assert ["has the endpoint a too" in one for one in mistakes(tmp_path, text)] == [True, True]


def test_files_in_a_flow_without_a_name_are_an_error_of_the_name(tmp_path: Path) -> None:
    lines = "from: {file: ./inbox, format: text}, to: dc1, topics: {to: orders}"
    defaults = "defaults: {flow: {start: earliest}}\n"
    (only,) = mistakes(tmp_path, f"{defaults}flows:\n  - {{{lines}}}\n")
    assert "name" in only
    assert "AttributeError" not in only

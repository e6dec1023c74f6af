"""File endpoints, and the flows that go to them, as far as their text goes."""

from pathlib import Path

import pytest

from planner.model.topology import Compaction, FileEndpoint, FileFormat, StartAt
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
        ("{file: 's3a://b/k'}", "s3a:// is not supported — mount the store as a folder"),
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


def test_small_files_are_merged_only_where_the_endpoint_says_so(tmp_path: Path) -> None:
    endpoint = "endpoints:\n  lake: {file: /d, format: json%s}\n"
    assert loaded(tmp_path, endpoint % "" + FLOW % "").endpoints["lake"].compact is None
    merges = loaded(tmp_path, endpoint % ", compact: {every: 30m}" + FLOW % "").endpoints["lake"].compact
    assert merges == Compaction(every_ms=1_800_000, below="16m", retention_ms=86_400_000)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (", rename: 'x.{topic}'", "flow f goes into files and has no rename"),
        (", transform: {where: 'true'}", "flow f goes into files and has no transform"),
        (", restart_from: earliest", "flow f goes into files and has no restart_from"),
        (", groups: {sync: true}", "flow f goes into files and has no groups"),
        (", state: promoted", "flow f goes into files and can't be promoted"),
        (", every: 10ms", "every is from 1s to 1d"),
    ],
)
def test_what_a_flow_into_files_does_not_have(tmp_path: Path, more: str, expected: str) -> None:
    (found,) = mistakes(tmp_path, ENDPOINT + FLOW % more)
    assert expected in found


def test_files_are_no_source_and_clusters_have_no_interval(tmp_path: Path) -> None:
    flows = "flows:\n  - {name: f, from: lake, to: dc1, topics: {include: [a]}, every: 5s}\n"
    found = mistakes(tmp_path, ENDPOINT + flows)
    assert "is a file endpoint, and a flow copies from a cluster" in found[0]
    assert "flow f goes to a cluster and has no every" in found[1]

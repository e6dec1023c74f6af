"""How two values of a field are compared, and that a change's fields are the paths that DeepDiff finds."""

import subprocess
import sys
from typing import Any

import msgspec
import pytest

from planner.diff.compare import PathDifference, Secret, Tree, changed_fields, differences, same
from planner.diff.typed_values import flow_values, job_values
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.files import CompactionSpec, FilesSpec, LinesSpec
from runtime.contract.spec.flow import AtOffsets, AtTimestamp, ConfigsSpec, GroupsSpec, OriginCommitsSpec
from runtime.contract.spec.jobspec import CopySettings, FlowSpec, JobSpec, ProtectionSpec
from runtime.contract.spec.launch import LaunchSpec, MetricsSpec
from runtime.contract.spec.rename import Template
from runtime.contract.spec.schemas import RegistrySpec, SchemaSync
from runtime.contract.spec.selection import SelectionSpec
from runtime.contract.spec.topic_settings import InternalSpec, TimestampsSpec
from runtime.contract.spec.transform import TransformSpec


def test_a_comparison_does_not_import_pandas_and_leaves_it_importable() -> None:
    program = """
import sys
from planner.diff.compare import changed_fields
(change,) = changed_fields({"state": "active"}, {"state": "paused"})
assert (change.old, change.new) == ("active", "paused")
assert "deepdiff" in sys.modules and "pandas" not in sys.modules
assert sys.modules.get("pandas", "importable") is not None
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    ("path", "old", "new", "expected"),
    [
        (("config", "cleanup.policy"), "compact,delete", "delete,compact", True),
        (("config", "retention.ms"), None, "604800000", False),  # a default is not the same as no value
        (("config", "vendor.password"), Secret("a"), Secret("a"), True),
        (("config", "vendor.password"), Secret("a"), Secret("b"), False),
        (("recorded", "config.cleanup.policy"), "compact,delete", "delete,compact", True),
        (("topics.include",), ("a", "b"), ("b", "a"), True),
        (("topics.include",), ("a", "b"), ["b", "a", "b"], True),  # a list: as it was read from a plan file
        (("topics.include",), ("a", "b"), ("a",), False),
        (("rpo",), 5_000, 5_000, True),
        (("rpo",), 5_000, None, False),
        (("rename",), {"match": "a", "to": "b"}, {"table": {"a": "b"}}, False),
        (("start",), {"offsets": {"a": {"0": 42}}}, {"offsets": {"a": {"0": 42}}}, True),
        (("declared",), {"a": ("x", "y")}, {"a": ["x", "y"]}, True),
        (("replication",), (3, 3, 2), 3, False),
    ],
)
def test_the_comparator_of_each_type(path: Any, old: object, new: object, expected: bool) -> None:
    assert same(path, old, new) is expected
    assert same(path, new, old) is expected


def test_every_pair_gets_its_own_differences_in_the_order_of_the_new_values() -> None:
    old: Tree = {("partitions",): 6, ("config", "b"): "1", ("config", "a"): "1", ("config", "gone"): "1"}
    new: Tree = {("partitions",): 12, ("config", "b"): "2", ("config", "a"): "2"}
    alike: Tree = {("config", "cleanup.policy"): "compact,delete"}
    other: Tree = {("config", "cleanup.policy"): "delete,compact"}

    assert differences([(new, new), (old, new), (alike, other)]) == [
        (),
        (
            PathDifference(("partitions",), 6, 12),
            PathDifference(("config", "b"), "1", "2"),
            PathDifference(("config", "a"), "1", "2"),
            PathDifference(("config", "gone"), "1", None),
        ),
        (),
    ]


def job(**more: Any) -> JobSpec:
    clusters = {"dc1": ClusterSpec(bootstrap="a"), "dc2": ClusterSpec(bootstrap="b")}
    return JobSpec(
        **{"job": "j", "topology": "t", "destination": "dc2", "clusters": clusters, "flows": []} | more
    )


FLOW = FlowSpec(name="orders", source="dc1", destination="dc2", topics=SelectionSpec(include=("a",)))
BUCKET = "s3a://bucket/a"
BUCKET_CLIENT: dict[str, Any] = {"region": "eu-1", "access.key": {"env": "A"}}
OTHER_FLOW = FlowSpec(
    name="orders",
    source="dc3",
    destination="dc4",
    topics=SelectionSpec(include=("b", "d"), exclude=("c", "e"), default_exclude=False),
    rename=Template(text="{source}.{topic}"),
    provenance="batch",
    native_only=True,
    shared=True,
    start=AtTimestamp(timestamp_ms=7),
    restart_from=AtOffsets(offsets={"a": {0: 1, 10: 2}}),
    state="paused",
    reverse_of="there",
    promoted=("a", "b"),
    configs=ConfigsSpec(sync="all", exclude=("x", "y")),
    replication=2,
    groups=GroupsSpec(
        include=("g", "i"),
        exclude=("h", "j"),
        default_exclude=False,
        sync=False,
        every_ms=1,
        mode="timestamp",
    ),
    schemas=SchemaSync(sync=True, subjects="record_name", ids="translate"),
    acls_sync=True,
    protect="acl",
    rpo_ms=1,
    rate_limit=1,
    follow_every_ms=None,
    heartbeats_every_ms=None,
    checkpoints_every_ms=None,
    origin_commits=OriginCommitsSpec(group="g"),
    on_source_delete="delete",
    on_data_loss="skip",
    transform=TransformSpec(where="true", drop=("value.a",), on_filtered="tombstone"),
    files=FilesSpec(
        endpoint="lake", folder=BUCKET, client=BUCKET_CLIENT, format="json", compact=CompactionSpec()
    ),
    lines=LinesSpec(endpoint="inbox", folder=BUCKET, client=BUCKET_CLIENT, format="text", topic="inbox"),
)
OTHER_JOB = job(
    clusters={"dc2": ClusterSpec(bootstrap="b", id="x", client={"client.id": "c"})},
    flows=[FLOW],
    slots=3,
    launch=LaunchSpec(launcher="yarn", master="yarn", memory="2g", conf={"a": "b"}, options={"c": "d"}),
    copy=CopySettings(lanes=3),
    internal=InternalSpec(replication=3, retention_ms=1, timestamps=TimestampsSpec(partitions=2)),
    declared={"a": ["retention.ms"]},
    protection=ProtectionSpec(principal="User:repl"),
    metrics=MetricsSpec(host="::", port=1, partitions=1),
    registries={"dc1": RegistrySpec(url="https://r")},
)


NO_FIELDS = {"version", "job", "topology", "destination", "routes"}  # names of the job, and what others take
EVERY_KEY = [("flow", key) for key in FlowSpec.__struct_fields__ if key != "name"] + [
    ("job", key) for key in JobSpec.__struct_fields__ if key not in NO_FIELDS
]


@pytest.mark.parametrize(("kind", "key"), EVERY_KEY)
def test_no_key_is_left_out(kind: str, key: str) -> None:
    spec: Any
    spec, other, values = (
        (FLOW, OTHER_FLOW, flow_values) if kind == "flow" else (job(), OTHER_JOB, job_values)
    )
    edited = msgspec.structs.replace(spec, **{key: getattr(other, key)})

    assert edited != spec
    assert changed_fields(values(spec), values(edited)) != ()
    assert changed_fields(values(edited), values(edited)) == ()

"""Names that others choose make no other object of a manifest, no other line of metrics and no other file."""

import os
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from planner.workflows.manifests import as_yaml
from runtime.contract.records.ledger import PartitionKey, ProgressKey, decode_key, encode_key
from runtime.contract.spec.launch import LaunchSpec
from runtime.files.source.folder import FolderSource, open_file
from runtime.files.source.lines import LineReader
from runtime.launch import manifest
from runtime.metrics.endpoint import JobCollector, MetricsEndpoint
from runtime.metrics.snapshot import SlotMetrics
from tests.runtime.metrics.given import flow, partition, picture, report, running
from tests.runtime.metrics.test_endpoint import get

HOSTILE = [
    "x\n---\nkind: ClusterRoleBinding",
    "a: b",
    "{{ .Values }}",
    "*x",
    "'\"",
    "../x",
    "a\x1b[2J",
    "ü" * 300,
]


@pytest.mark.parametrize("name", HOSTILE)
def test_options_of_a_job_add_no_object_to_its_rights(name: str) -> None:
    launch = LaunchSpec(launcher="kubernetes", options={"namespace": name, "service_account": name})
    resources = list(yaml.safe_load_all(as_yaml(manifest.rights(launch))))
    assert [one["kind"] for one in resources] == ["ServiceAccount", "Role", "RoleBinding", "Role"]
    assert {one["metadata"]["namespace"] for one in resources} == {name}


@pytest.mark.parametrize("name", ['f"} 1\nrepl_evil 1\n#', "f\\", "f\u202e"])
def test_a_label_adds_no_metric(name: str) -> None:
    book, one = SlotMetrics(), report(partition(flow=name))
    book.record_report(one)
    seen = picture(flow(name=name), slots=[running()], reports=[one])
    made = MetricsEndpoint("127.0.0.1", 0, [JobCollector(lambda: seen, book)], list)
    try:
        text = get(made, "/metrics")[1].decode()
    finally:
        made.close()
    families = list(text_string_to_metric_families(text))
    assert not [family.name for family in families if not family.name.startswith("repl_")]
    assert name in {sample.labels.get("flow") for family in families for sample in family.samples}
    assert "repl_evil" not in {family.name for family in families}


def test_any_file_of_a_folder_is_read_by_its_name_or_passed_over(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "link.json").symlink_to("/etc/passwd")
    (tmp_path / "folder.json").mkdir()
    names = ["a\nb.json", "\x1b[2J.json", "\u202e.json", "x" * 255, '"].json']
    for name in names:
        (tmp_path / name).write_text("1\n")
    listing = FolderSource(tmp_path).listing()
    assert sorted(listing.files) == sorted(names)
    assert dict(listing.ignored) == {"folders and special files": 2, "symbolic links": 1}
    for name in names:
        with open_file(tmp_path, name) as file:
            assert len(LineReader(file, "json").read(0, 1_000).records) == 1
        key = ProgressKey(PartitionKey("f", name, 0))
        assert decode_key(encode_key(key)) == key

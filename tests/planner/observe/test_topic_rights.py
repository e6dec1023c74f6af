"""Which topics the doctor asks about, and what it says of a principal that lacks a right."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from planner.observe.doctor import DECLARED, INTERNAL, MIRROR, SOURCE, uses_of
from runtime.contract.spec.rename import Template
from runtime.lab.lab import Lab
from tests.commands import repl
from tests.planner.graph.build import flow, topic, topology
from tests.records import create_topic
from tests.rights import Right, principal, rights

LISTED = ("a", "copy.a", "unrelated", "__repl.ledger", "__repl.history")


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        ("dc1", {"a": (SOURCE,), "declared": (DECLARED,)}),
        ("dc2", {"copy.a": (MIRROR,), "__repl.ledger": (INTERNAL,)}),
    ],
)
def test_a_source_is_read_and_a_mirror_and_the_ledger_are_written(
    cluster: str, expected: dict[str, tuple[str, ...]]
) -> None:
    shop = topology(flow("x=dc1>dc2", "a", rename=Template("copy.{topic}")), topic("dc1/declared"))
    found = uses_of(shop, cluster, LISTED)
    assert expected == {
        name: used for name, used in found.items() if not name.startswith("__repl.") or name in LISTED
    }


@pytest.mark.integration
def test_a_denied_right_is_named(lab_sasl: Lab, tmp_path: Path, fresh: Callable[[str], str]) -> None:
    prefix = f"{fresh('doctor')}-"
    readable, hidden = f"{prefix}orders", f"{prefix}hidden"
    dc1 = lab_sasl.clusters["dc1"]
    for name in (readable, hidden):
        create_topic(dc1.client, name)
    granted = [*rights("To plan", prefix)[:1], Right("TOPIC", readable, False, ("READ",))]
    client = principal(dc1, fresh("doctor"), granted, tmp_path)
    file = tmp_path / "doctor.yaml"
    body = {
        "apiVersion": "repl/v1",
        "name": "doctor",
        "clusters": {
            "dc1": {"bootstrap": dc1.bootstrap, "client": client},
            "dc2": {"bootstrap": lab_sasl.clusters["dc2"].bootstrap},
        },
        "topics": [{"name": hidden, "cluster": "dc1"}],
        "flows": [{"name": "x", "from": "dc1", "to": "dc2", "topics": {"include": f"{prefix}.*"}}],
    }
    file.write_text(json.dumps(body))

    done = repl("doctor", "dc1", str(file), "--json")
    assert done.returncode == 0, done.stderr
    found = {one["topic"]: one for one in json.loads(done.stdout)["topic_rights"]}
    assert found[readable]["uses"] == [SOURCE]
    assert found[readable]["missing"] == {"DESCRIBE_CONFIGS": "mirror its settings"}
    assert found[hidden]["missing"] == {"DESCRIBE": "see the topic"}

    shown = repl("doctor", "dc1", str(file)).stdout
    assert f"Rights on the topics that flows use: all on 0 of {len(found)}" in shown
    assert "mirror its settings" in shown

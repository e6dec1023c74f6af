"""For any topology at a real cluster: apply, then nothing is planned; the same apply again does nothing."""

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.cli.app import run
from tests.planner.apply.cut import history, plan_now, registry, topic_ids
from tests.topologies import at

pytestmark = [pytest.mark.integration, pytest.mark.long]

CONFIGS = st.fixed_dictionaries(
    {},
    optional={
        "retention.ms": st.sampled_from([-1, 0, 604_800_000, 86_400_000]),  # the third is Kafka's own default
        "cleanup.policy": st.sampled_from(["delete", "compact", "compact,delete", "delete,compact"]),
        "min.cleanable.dirty.ratio": st.sampled_from([0.5, 0.25, 1]),
        "compression.type": st.sampled_from(["producer", "lz4"]),
        "max.message.bytes": st.sampled_from(["1MB", "2MiB", 1_048_588]),
        "retention.bytes": st.sampled_from([-1, "1GiB"]),
        "preallocate": st.booleans(),
    },
)
TOPIC: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"config": CONFIGS},
    optional={
        "partitions": st.integers(1, 3),
        "replication": st.just(1),
        "on_remove": st.sampled_from(["keep", "delete"]),
    },
)
VERSIONS = st.lists(st.lists(TOPIC, min_size=1, max_size=4), min_size=1, max_size=2)


@settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(versions=VERSIONS)
def test_apply_then_plan_is_empty_and_apply_again_does_nothing(lab, fresh, versions):
    """Two versions after each other: the second also grows, changes and takes settings back."""
    name = fresh("any")
    with tempfile.TemporaryDirectory() as folder:
        topology = at(lab, name, Path(folder))
        for number, version in enumerate(versions):
            topology.topics = []
            for index, declared in enumerate(version):
                topology.topic(f"{name}-{index}", **grown(declared, number))
            path = str(topology.write())
            assert run(["apply", path, "--auto-approve"]) == 0
            assert plan_now(topology.file).steps == ()
            assert registry(lab, topology).keys() == {one["name"] for one in topology.topics}
            before = topic_ids(lab, name), len(history(lab, topology))
            assert run(["apply", path, "--auto-approve"]) == 0
            assert (topic_ids(lab, name), len(history(lab, topology))) == before


def grown(declared: dict[str, Any], number: int) -> dict[str, Any]:
    """Partitions only grow, so the second version has more of them wherever it says how many."""
    return {**declared, "partitions": declared.get("partitions", 1) + 3 * number}

"""R1–R4 on real Spark and real brokers: each kind of blow falls at a moment that a seed chooses."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import checker
from tests.chaos.blows import WEIGHTS
from tests.chaos.copiers import Kept, SparkCopier, sides_of
from tests.chaos.links import links
from tests.chaos.storm import Ground, Storm, cluster_specs, prepare, rage
from tests.labs import running_lab
from tests.spark.job import flow_of, spec_of

pytestmark = [pytest.mark.spark, pytest.mark.long]
SEED = 20


def test_nothing_is_lost_doubled_or_reordered(tmp_path: Path, fresh: Callable[[str], str]) -> None:
    topic, masked = fresh("chaos"), fresh("masked")
    order = [*WEIGHTS, "worker killed"]
    random.Random(SEED).shuffle(order)
    with links() as given, running_lab(tmp_path / "lab", *cluster_specs(given, 1)) as lab:
        sides = sides_of({name: one.bootstrap for name, one in lab.clusters.items()})
        for one in (topic, masked):
            prepare(sides, one, mirror=False)
        flows = [flow_of(topic, [topic]), flow_of(masked, [masked], transform=checker.TRANSFORM)]
        copier = SparkCopier(spec_of(lab, topic, flows), tmp_path / "job.json")
        storm = Storm(SEED, order, pause_s=1.5, rate=200.0)
        log = tmp_path / "job.log"
        ground = Ground(lab, given, {})
        found = rage(ground, topic, storm, lambda: Kept(copier, given.prefix, log), print, masked)
    assert sum(found.dealt.values()) == len(order)
    assert found.exact, str(found)

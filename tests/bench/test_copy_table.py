"""The table of `make bench-copy`: the share of the bound, and ratios round by round."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.bench.copy import table
from tests.bench.copy.latency import Latency
from tests.bench.copy.librdkafka import Librdkafka
from tests.bench.copy.mirror import MirrorMaker
from tests.bench.copy.run import Run
from tests.bench.copy.throughput import Measured
from tests.bench.copy.workloads import LATENCY

OURS = Measured(
    workload="1k-none",
    side="repl",
    records_per_s=300_000,
    mb_per_s=300,
    cpu_s_per_gb=1.5,
    brokers_cpu_s_per_gb=4.0,
    rss_mb=600,
    python_mb=100,
    first_record_s=6,
    window_s=12,
)
THEIRS = replace(OURS, side="mm2", mb_per_s=100, cpu_s_per_gb=15)
ROWS = [
    *(OURS, THEIRS),
    *(replace(OURS, mb_per_s=200), replace(THEIRS, mb_per_s=80)),  # a busier machine, for both sides
    *(replace(OURS, mb_per_s=400), replace(THEIRS, mb_per_s=100)),
]


def test_the_bound_is_the_cores_by_the_brokers_cpu_of_the_same_round() -> None:
    """Two cores and 4 CPU-s a GB: 500 MB/s."""
    ours = [row for row in ROWS if row.side == "repl"]
    assert table.bound_share(ours, cores=2) == pytest.approx((0.6, 0.4, 0.8))
    assert table.bound_share([], cores=2) is None


def test_ratios_are_taken_round_by_round() -> None:
    rounds = table.by_side(ROWS)
    ours, theirs = rounds["1k-none", "repl"], rounds["1k-none", "mm2"]
    assert table.ratio("mb_per_s", ours, theirs) == pytest.approx((3.0, 2.5, 4.0))
    assert table.ratio("p50_ms", ours, theirs) is None
    assert table.ratio("mb_per_s", ours, []) is None


def test_the_table_says_both_with_their_spread() -> None:
    late = Latency("latency-1000", "repl", 1000, 10, 30, 50, 0.3, 600)
    theirs = replace(late, side="mm2-linger-0", p50_ms=20, p99_ms=30)
    slower = replace(late, side="mm2-linger-5", p50_ms=25, p99_ms=20)
    lines = table.text([*ROWS, late, slower, theirs], cores=2).splitlines()
    assert any(line.startswith("| latency-1000 | mm2-linger-5 |") for line in lines)
    ours = next(line for line in lines if line.startswith("| 1k-none | repl"))
    assert "60% (40% to 80%) | 3.0× as fast (2.5 to 4.0), 1/10.0 of the CPU |" in ours
    assert next(line for line in lines if "1k-none | mm2" in line).endswith("| 20% (16% to 20%) |  |")
    assert "p50 0.50× (0.50 to 0.50), p99 1.00×" in next(
        line for line in lines if "latency-1000 | repl" in line
    )


def test_latency_is_that_of_sides_that_do_not_linger_for_throughput(tmp_path: Path) -> None:
    run = Run("r", LATENCY, "t", "a:1", "b:1", tmp_path)
    made = MirrorMaker(exactly_once=False)
    assert made.configuration(run)["dst.producer.linger.ms"] == "20"
    best = made.for_latency()
    assert [one.name for one in best] == ["mm2-linger-0", "mm2-linger-5"]
    assert [one.configuration(run)["dst.producer.linger.ms"] for one in best] == ["0", "5"]
    exactly = MirrorMaker(exactly_once=True).for_latency()[0].configuration(run)
    assert "r->dst.transaction.boundary" not in exactly
    assert [one.copy(run).producer["linger.ms"] for one in Librdkafka().for_latency()] == [0, 5]
    assert [one.copy(run).gather_s for one in (Librdkafka(), *Librdkafka().for_latency())] == [0.005, 0, 0]


def test_the_file_has_the_medians_and_the_share(tmp_path: Path) -> None:
    table.write_json([*ROWS, replace(OURS, side="slot")], tmp_path / "bench.json")
    ours, theirs = json.loads((tmp_path / "bench.json").read_text())
    assert (ours["mb_per_s"], theirs["side"]) == (300, "mm2")
    assert ours["bound_share"] == round(300 / 1000 * 4.0 / (os.cpu_count() or 1), 3)

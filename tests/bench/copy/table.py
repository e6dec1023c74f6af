"""Medians of all rounds: a table for people, build/bench-copy.json for programs.

The bound of a round is what a copier would move that costs nothing itself: all cores of the machine, by the
CPU that the brokers took for each GB in this very round.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tests.bench.copy.latency import Latency
from tests.bench.copy.run import LATENCY_LINGERS_MS
from tests.bench.copy.throughput import Measured

Row = Measured | Latency
_JSON = ("records_per_s", "mb_per_s", "cpu_s_per_gb", "rss_mb", "p50_ms", "p99_ms")
_SHOWN = (*_JSON, "p999_ms", "cores", "first_record_s", "brokers_cpu_s_per_gb")
_HEAD = (
    *("records/s", "MB/s", "CPU-s/GB", "RSS MB", "p50 ms", "p99 ms", "p99.9 ms", "cores", "first s"),
    *("brokers' CPU-s/GB", "of the bound", "against mm2"),
)
_OFFICIAL = {"1k-none", "1k-lz4", "100b-lz4", "100b-tiny", "1k-headers", "1k-schemas", "latency-1000"}
_OTHERS = ("mm2", "mm2-eos", "librdkafka")
_BEST = tuple(f"{side}-linger-{linger}" for side in _OTHERS for linger in LATENCY_LINGERS_MS)
_SIDES = {"repl", *_OTHERS, *_BEST}

Rounds = dict[tuple[str, str], list[Row]]
Medians = dict[tuple[str, str], dict[str, float | None]]


class Spread(NamedTuple):
    """The median of some rounds, with the lowest and the highest of them."""

    median: float
    lowest: float
    highest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread | None:
        return cls(median(values), min(values), max(values)) if values else None


def by_side(rows: Iterable[Row]) -> Rounds:
    """The rows of each workload and side, one for each round, in order."""
    found: Rounds = {}
    for row in rows:
        found.setdefault((row.workload, row.side), []).append(row)
    return found


def medians(rows: Iterable[Row]) -> Medians:
    return {key: {name: _median(found, name) for name in _SHOWN} for key, found in by_side(rows).items()}


def bound_share(rows: Iterable[Row], cores: int) -> Spread | None:
    """What share of the bound each round reached."""
    measured = (row for row in rows if isinstance(row, Measured) and row.brokers_cpu_s_per_gb)
    return Spread.of([row.mb_per_s / 1e3 * row.brokers_cpu_s_per_gb / cores for row in measured])


def ratio(name: str, ours: Sequence[Row], theirs: Sequence[Row]) -> Spread | None:
    """Ours over theirs, round by round: the rounds alternate, so both sides saw about the same machine."""
    found = [
        here / there
        for one, other in zip(ours, theirs, strict=False)
        if (here := getattr(one, name, None)) and (there := getattr(other, name, None))
    ]
    return Spread.of(found)


def _median(rows: Sequence[Row], name: str) -> float | None:
    found = [value for row in rows if (value := getattr(row, name, None)) is not None]
    return round(median(found), 3) if found else None


def write_json(rows: Iterable[Row], path: Path) -> None:
    """The official workloads and sides; what was measured beside them stands in the table alone."""
    rows = list(rows)
    rounds = by_side(rows)
    listed = []
    for (workload, side), facts in medians(rows).items():
        if workload in _OFFICIAL and side in _SIDES:
            share = bound_share(rounds[workload, side], os.cpu_count() or 1)
            listed.append(
                {
                    "workload": workload,
                    "side": side,
                    **{name: facts[name] for name in _JSON},
                    "bound_share": round(share.median, 3) if share else None,
                }
            )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(listed, indent=2) + "\n")


def text(rows: Iterable[Row], cores: int) -> str:
    """Markdown: medians, the share of the bound, and of ours the ratio to MirrorMaker 2 round by round."""
    rows = list(rows)
    rounds, facts = by_side(rows), medians(rows)
    lines = [
        f"Medians (lowest to highest round); the bound is {cores} cores by the brokers' CPU-s/GB.",
        "",
        f"| workload | side | {' | '.join(_HEAD)} |",
        "| --- | --- |" + " ---: |" * (len(_HEAD) - 2) + " --- | --- |",
    ]
    for (workload, side), found in sorted(rounds.items(), key=lambda item: item[0][0]):
        cells = [_cell(facts[workload, side][name]) for name in _SHOWN]
        share = bound_share(found, cores)
        cells.append(_percent(share) if share else "")
        cells.append("" if side.startswith("mm2") else _against(found, _rival(rounds, facts, workload)))
        lines.append(f"| {workload} | {side} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _rival(rounds: Rounds, facts: Medians, workload: str) -> Sequence[Row]:
    """Returns the rounds of MirrorMaker 2 at least once: of latency, those with the lowest median."""
    sides = ["mm2", *(f"mm2-linger-{linger}" for linger in LATENCY_LINGERS_MS)]
    measured = [(workload, side) for side in sides if (workload, side) in rounds]
    return rounds[min(measured, key=lambda key: facts[key]["p50_ms"] or 0.0)] if measured else []


def _cell(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"


def _percent(share: Spread) -> str:
    return f"{share.median:.0%} ({share.lowest:.0%} to {share.highest:.0%})"


def _against(ours: Sequence[Row], theirs: Sequence[Row]) -> str:
    said = []
    if rate := ratio("mb_per_s", ours, theirs):
        said.append(f"{rate.median:.1f}× as fast ({rate.lowest:.1f} to {rate.highest:.1f})")
    if cpu := ratio("cpu_s_per_gb", ours, theirs):
        said.append(f"1/{1 / cpu.median:.1f} of the CPU")
    said += [
        f"{name[:3]} {time.median:.2f}× ({time.lowest:.2f} to {time.highest:.2f})"
        for name in ("p50_ms", "p99_ms")
        if (time := ratio(name, ours, theirs))
    ]
    return ", ".join(said)

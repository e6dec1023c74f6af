"""Medians of all rounds: a table for people, build/bench-copy.json for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median

from tests.bench.copy.latency import Latency
from tests.bench.copy.throughput import Measured

Row = Measured | Latency
_JSON = ("records_per_s", "mb_per_s", "cpu_s_per_gb", "rss_mb", "p50_ms", "p99_ms")
_SHOWN = (*_JSON, "p999_ms", "cores", "first_record_s", "brokers_cpu_s_per_gb")
_HEAD = (
    *("records/s", "MB/s", "CPU-s/GB", "RSS MB", "p50 ms", "p99 ms", "p99.9 ms", "cores", "first s"),
    "brokers' CPU-s/GB",
)
_OFFICIAL = {"1k-none", "1k-lz4", "100b-lz4", "100b-tiny", "1k-headers", "latency-1000"}
_SIDES = {"repl", "mm2", "mm2-eos"}

Medians = dict[tuple[str, str], dict[str, float | None]]


def medians(rows: Iterable[Row]) -> Medians:
    together: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        together.setdefault((row.workload, row.side), []).append(row)
    return {key: {name: _median(found, name) for name in _SHOWN} for key, found in together.items()}


def _median(rows: Sequence[Row], name: str) -> float | None:
    found = [value for row in rows if (value := getattr(row, name, None)) is not None]
    return round(median(found), 3) if found else None


def write_json(found: Medians, path: Path) -> None:
    """The official workloads and sides; what was measured beside them stands in the table alone."""
    listed = [
        {"workload": workload, "side": side, **{name: facts[name] for name in _JSON}}
        for (workload, side), facts in found.items()
        if workload in _OFFICIAL and side in _SIDES
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(listed, indent=2) + "\n")


def text(found: Medians) -> str:
    """Markdown; each line of ours also says how it stands to MirrorMaker 2's of the same workload."""
    lines = [
        f"| workload | side | {' | '.join(_HEAD)} | against mm2 |",
        "| --- | --- |" + " ---: |" * len(_HEAD) + " --- |",
    ]
    for (workload, side), facts in sorted(found.items(), key=lambda item: item[0][0]):
        cells = [_cell(facts[name]) for name in _SHOWN]
        against = _against(facts, found.get((workload, "mm2"))) if side not in {"mm2", "mm2-eos"} else ""
        lines.append(f"| {workload} | {side} | {' | '.join(cells)} | {against} |")
    return "\n".join(lines)


def _cell(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"


def _against(ours: dict[str, float | None], theirs: dict[str, float | None] | None) -> str:
    if theirs is None:
        return ""
    said = []
    if ours["mb_per_s"] and theirs["mb_per_s"]:
        said.append(f"{ours['mb_per_s'] / theirs['mb_per_s']:.1f}× as fast")
    if ours["cpu_s_per_gb"] and theirs["cpu_s_per_gb"]:
        said.append(f"1/{theirs['cpu_s_per_gb'] / ours['cpu_s_per_gb']:.1f} of the CPU")
    said += [
        f"{name[:3]} 1/{there / here:.1f}"
        for name in ("p50_ms", "p99_ms")
        if (here := ours[name]) and (there := theirs[name])
    ]
    return ", ".join(said)

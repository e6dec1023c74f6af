"""The tables of docs/compatibility.md, from the notes of test_pairs.py: python -m tests.versions.table"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"
NOTES = Path("build/versions.jsonl")
BEGIN, END = "<!-- tables: python -m tests.versions.table -->", "<!-- end of the tables -->"
STEPS = ("plan and apply", "copy", "kill", "group sync", "failover", "failback", "verify")


def tables(notes: Iterable[Mapping[str, Any]]) -> str:
    """Returns both tables: features by version, and the steps of each pair."""
    pairs = {(one["source"], one["destination"]): one for one in notes}  # the last run of each counts
    features: dict[str, dict[str, Mapping[str, Any]]] = {}
    for one in pairs.values():
        for version, found in one["features"].items():
            features[version] = {feature["name"]: feature for feature in found}
    versions = sorted(features, key=_release)
    rows = ["| feature | since | " + " | ".join(versions) + " | without it |"]
    rows.append("| --- | --- |" + " --- |" * (len(versions) + 1))
    for name, newest in features[versions[-1]].items():
        cells = ["yes" if features[version][name]["supported"] else "no" for version in versions]
        rows.append(f"| {name} | {newest['since']} | {' | '.join(cells)} | {_without(newest)} |")
    rows += ["", "| from → to | " + " | ".join(STEPS) + " |", "| --- |" + " --- |" * len(STEPS)]
    for source, destination in sorted(pairs, key=lambda pair: (_release(pair[0]), _release(pair[1]))):
        passed = pairs[source, destination]["passed"]
        cells = ["yes" if step in passed else "no" for step in STEPS]
        rows.append(f"| {source} → {destination} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _release(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _without(feature: Mapping[str, Any]) -> str:
    needed = "**needed**: " if feature["required"] else ""
    sides = (("source", feature["as_source"]), ("destination", feature["as_destination"]))
    told = "; ".join(f"{side}: {text}" for side, text in sides if text)
    return f"{needed}{told}" if told else str(feature["otherwise"])


def main() -> None:
    notes = [json.loads(line) for line in NOTES.read_text().splitlines()]
    text = PAGE.read_text()
    head, rest = text.split(BEGIN)
    _, tail = rest.split(END)
    PAGE.write_text(f"{head}{BEGIN}\n\n{tables(notes)}\n\n{END}{tail}")


if __name__ == "__main__":
    main()

"""The report of a drill: on the terminal, as JSON, as JUnit XML, as a page, and as Prometheus metrics."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from rich.text import Text

from planner.model.drill import LAB, LIVE, DrillReport, Scenario, largest
from planner.render.page import page_environment
from planner.render.readable import UNKNOWN, one_line, plural
from planner.render.table import Cell, Column, Row, table

FORMAT_VERSION = 1
_MOST_LINES = 12  # of a problem on the terminal
GOOD, BAD = "green", "bold red"
# XML 1.0 has no place for other control characters, escaped or not.
_ALLOWED = frozenset("\t\n\r")
Steps = Mapping[str, Sequence[tuple[str, str]]]  # the steps of features, by what they are for
_OF_DRILLS_ALONE = ("repl_drill_last_success_timestamp", "repl_drill_every_seconds")


def screen(report: DrillReport) -> Iterator[Text]:
    """Yields the lines for the terminal."""
    for note in report.notes:
        yield Text(f"note: {one_line(note)}", "dim")
    for scenario in report.scenarios:
        yield Text()
        yield _headline(scenario)
        for promise in scenario.promises:
            mark, style = ("ok", GOOD) if promise.kept else ("BROKEN", BAD)
            line = Text(f"  {mark:<7}", style)
            line.append(f"{one_line(promise.text)}: {one_line(promise.measured)}", "")
            if not promise.kept:
                line.append(f" (wanted: {one_line(promise.wanted)}); {one_line(promise.why)}")
            yield line
        yield from _problem(scenario.problem)
    yield Text()
    yield Text(summary(report), GOOD if report.passed else BAD)


def _problem(text: str) -> Iterator[Text]:
    """Yields what ended a scenario: its first line, and the last ones. A page shows all of them."""
    lines = [one_line(line) for line in text.splitlines() if line.strip()]
    shown = lines if len(lines) <= _MOST_LINES else [lines[0], "…", *lines[2 - _MOST_LINES :]]
    for number, line in enumerate(shown):
        yield Text(f"  {'' if number else 'FAILED':<7}{line}", BAD)


def summary(report: DrillReport) -> str:
    """Returns the last line."""
    broken = sum(not promise.kept for one in report.scenarios for promise in one.promises)
    failed = sum(bool(one.problem) for one in report.scenarios)
    if report.passed:
        return f"The drill passed: {plural(len(report.scenarios), 'scenario')}, every promise kept."
    found = [f"{plural(broken, 'promise')} broken"] if broken else []
    found += [f"{plural(failed, 'scenario')} could not be finished"] if failed else []
    return f"The drill failed: {', '.join(found) or 'no flow runs, so there is nothing to rehearse'}."


def figures(scenario: Scenario) -> list[tuple[str, str]]:
    """Returns the names and values of the four figures, the RTO with its parts and the RPO with the risk."""
    rto = UNKNOWN if scenario.rto_s is None else f"{scenario.rto_s:.1f} s"
    if scenario.rto is not None:
        parts = scenario.rto
        rto += (
            f" = failover {parts.failover_s:.1f} s + wait {parts.wait_s:.1f} s"
            f" + first record {parts.first_record_s:.1f} s"
        )
    rpo = UNKNOWN if scenario.rpo_records is None else plural(scenario.rpo_records, "record")
    if scenario.rpo_records is not None and scenario.at_risk_records is not None:
        rpo += f" of {scenario.at_risk_records:,} at risk"
    return [
        ("RTO", rto),
        ("RPO", rpo),
        ("read again", UNKNOWN if scenario.read_again is None else f"{scenario.read_again:,}"),
        ("skipped", UNKNOWN if scenario.skipped is None else f"{scenario.skipped:,}"),
    ]


def rto_text(report: DrillReport) -> str:
    """Returns the longest RTO of a drill."""
    return UNKNOWN if report.rto_s is None else f"{report.rto_s:.1f} s"


def rpo_text(report: DrillReport) -> str:
    """Returns the most records that did not arrive in a drill."""
    return UNKNOWN if report.rpo_records is None else plural(int(report.rpo_records), "record")


def as_json(report: DrillReport) -> dict[str, Any]:
    """Returns the report as a tree."""
    return {
        "format_version": FORMAT_VERSION,
        "passed": report.passed,
        **asdict(report),
        "scenarios": [
            {**asdict(one), "passed": one.passed, "took_s": round(one.took_s, 1)} for one in report.scenarios
        ],
    }


def junit(report: DrillReport) -> str:
    """Returns JUnit's XML: a suite for each scenario, a test for each promise."""
    root = ElementTree.Element("testsuites", name=f"repl drill {_text(report.topology)}")
    for scenario in report.scenarios:
        broken = [one for one in scenario.promises if not one.kept]
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=_text(scenario.name),
            tests=str(len(scenario.promises) + 1),
            failures=str(len(broken)),
            errors=str(int(bool(scenario.problem))),
            time=f"{scenario.took_s:.1f}",
            timestamp=report.started_at,
        )
        for promise in scenario.promises:
            case = ElementTree.SubElement(
                suite, "testcase", classname=_text(scenario.name), name=_text(promise.text)
            )
            if not promise.kept:
                said = f"wanted {promise.wanted}, measured {promise.measured}: {promise.why}"
                ElementTree.SubElement(case, "failure", message=_text(said))
        steps = ElementTree.SubElement(suite, "testcase", classname=_text(scenario.name), name="steps")
        if scenario.problem:
            ElementTree.SubElement(steps, "error", message=_text(scenario.problem))
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def metrics(report: DrillReport, at_s: float, every_ms: int | None, last_success_s: float | None) -> str:
    """Returns metrics in Prometheus' text format, for the textfile collector of its node exporter."""
    named = f'{{topology="{_label(report.topology)}"}}'
    live = report.against == LIVE  # reading proves less than a drill: it must not silence the alert
    success_s = at_s if report.passed else last_success_s
    values: list[tuple[str, str, float | None]] = [
        ("repl_drill_last_run_timestamp", "When the last drill ended.", at_s),
        ("repl_drill_last_success_timestamp", "When a drill last passed.", success_s),
        ("repl_drill_passed", "1 if the last drill passed.", int(report.passed)),
        ("repl_drill_rto_seconds", "The longest time until consumers read on.", report.rto_s),
        ("repl_drill_rpo_records", "The most records that did not arrive.", report.rpo_records),
        ("repl_drill_every_seconds", "How often a drill must pass.", every_ms and every_ms / 1000),
    ]
    lines = []
    for name, about, value in values:
        if live:
            if name in _OF_DRILLS_ALONE:
                continue
            name = name.replace("repl_drill_", "repl_drill_live_")
        if value is not None:
            shown = f"{value:.1f}".removesuffix(".0")
            lines += [f"# HELP {name} {about}", f"# TYPE {name} gauge", f"{name}{named} {shown}"]
    return "\n".join(lines) + "\n"


def page(report: DrillReport) -> str:
    """Returns one page that needs nothing else."""
    longest = largest([one.took_s for one in report.scenarios]) or 1.0
    template = page_environment(Path(__file__).parent).get_template("drill.html.j2")
    return template.render(report=report, summary=summary(report), figures=figures, longest=longest)


def history_screen(
    trees: Sequence[Mapping[str, Any]], signatures: Sequence[str], width: int | None
) -> Iterator[Text]:
    """Yields a table of stored reports, the newest last. Each scenario is compared with its last run."""
    columns = (
        Column("DRILL"),
        Column("AGAINST"),
        Column("OF", spare=4),
        Column("RESULT"),
        Column("SCENARIOS", right=True, spare=1),
        Column("RTO", right=True),
        Column("RPO", right=True),
        Column("TOPOLOGY", spare=2),
        Column("SIGNATURE", spare=3),
        Column("SINCE THE ONE BEFORE"),
    )
    rows, last = [], dict[tuple[str, str], Mapping[str, Any]]()
    for tree, signature in zip(trees, signatures, strict=True):
        against = str(tree.get("against", LAB))
        scenarios = {
            (against, str(scenario.get("name"))): scenario for scenario in tree.get("scenarios") or []
        }
        before = [(last[key], scenario) for key, scenario in scenarios.items() if key in last]
        changed = any(old["digest"] != tree.get("digest") for old, _ in before)
        rows.append(
            [
                *_history_cells(tree, against),
                signature,
                "; ".join([*_changes(before), *(["the topology was changed"] if changed else [])]),
            ]
        )
        last |= {key: {**scenario, "digest": tree.get("digest")} for key, scenario in scenarios.items()}
    yield from table(columns, rows, width)


def _history_cells(tree: Mapping[str, Any], against: str) -> Row:
    scenarios = tree.get("scenarios") or []
    rto = largest([scenario.get("rto_s") for scenario in scenarios])
    rpo = largest([scenario.get("rpo_records") for scenario in scenarios])
    return [
        str(tree.get("started_at")),
        against,
        str(tree.get("features") or "standard"),
        Cell("passed", GOOD) if tree.get("passed") is True else Cell("failed", BAD),
        str(len(scenarios)),
        UNKNOWN if rto is None else f"{rto:.1f} s",
        UNKNOWN if rpo is None else f"{rpo:,.0f}",
        str(tree.get("digest"))[:19],
    ]


def _changes(pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> Iterator[str]:
    """Yields what is different: figures, and promises that broke or are kept again.

    A pair is the last run of a scenario, and this one.
    """
    for name, key, unit in (("RTO", "rto_s", " s"), ("RPO", "rpo_records", "")):
        old = largest([before.get(key) for before, _ in pairs])
        new = largest([scenario.get(key) for _, scenario in pairs])
        if old is not None and new is not None and round(new - old, 1):
            yield f"{name} {new - old:+,.1f}".removesuffix(".0") + unit
    for before, scenario in pairs:
        was, now = _promises(before, kept=False), _promises(scenario, kept=False)
        yield from (f"broken: {promise}" for promise in sorted(now - was))
        again = was & _promises(scenario, kept=True)
        yield from (f"kept again: {promise}" for promise in sorted(again))


def _promises(scenario: Mapping[str, Any], *, kept: bool) -> set[str]:
    return {
        f"{scenario.get('name')}: {promise.get('text')}"
        for promise in scenario.get("promises") or []
        if bool(promise.get("kept")) is kept
    }


def _headline(scenario: Scenario) -> Text:
    shown = ", ".join(f"{name} {value}" for name, value in figures(scenario))
    mark, style = ("passed", GOOD) if scenario.passed else ("failed", BAD)
    return Text.assemble((f"{one_line(scenario.name)}: ", "bold"), (mark, style), f" ({shown})")


def steps_markdown(steps: Steps) -> str:
    """Returns the tables of docs/drill-scenarios.md."""
    parts = []
    for heading, rows in steps.items():
        lines = [f"| `{text}` | {about} |" for text, about in rows]
        parts.append("\n".join([f"| step | {heading} |", "| --- | --- |", *lines]))
    return "\n\n".join(parts) + "\n"


def steps_screen(steps: Steps) -> Iterator[Text]:
    """Yields all steps for a terminal: each sentence, and below it what it does."""
    for heading, rows in steps.items():
        yield Text(heading.upper(), "bold")
        for text, about in rows:
            yield Text(f"  {text}", "bold")
            yield Text(f"      {about.replace('`', '')}", "dim")
        yield Text()
    yield Text("{topics} are: orders, or: orders, payments and refunds, or: every topic")


def _text(text: str) -> str:
    return "".join(one if one.isprintable() or one in _ALLOWED else "?" for one in text)


def _label(text: str) -> str:
    return _text(text).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

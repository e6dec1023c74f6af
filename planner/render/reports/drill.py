"""The report of a drill: on the terminal, as JSON, as JUnit XML, as a page, and as Prometheus metrics."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from rich.text import Text

from planner.model.drill import LIVE, DrillReport, Scenario, StoredDrill, largest
from planner.render.page import page_environment
from planner.render.readable import UNKNOWN, one_line, plural
from planner.render.table import Cell, Column, Row, table

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
    broken = sum(not promise.kept for scenario in report.scenarios for promise in scenario.promises)
    failed = sum(bool(scenario.problem) for scenario in report.scenarios)
    if report.passed:
        return f"The drill passed: {plural(len(report.scenarios), 'scenario')}, every promise kept."
    faults = [f"{plural(broken, 'promise')} broken"] if broken else []
    faults += [f"{plural(failed, 'scenario')} could not be finished"] if failed else []
    return f"The drill failed: {', '.join(faults) or 'no flow runs, so there is nothing to rehearse'}."


def figures(scenario: Scenario) -> list[tuple[str, str]]:
    """Returns the names and values of the four figures, the RTO with its parts and the RPO with the risk."""
    rto, parts = UNKNOWN, scenario.rto
    if parts is not None:
        rto = (
            f"{parts.total_s:.1f} s = failover {parts.failover_s:.1f} s + wait {parts.wait_s:.1f} s"
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


def document(report: DrillReport) -> dict[str, Any]:
    """Returns the report as a JSON document."""
    return {
        "passed": report.passed,
        **asdict(report),
        "scenarios": [
            {
                **asdict(scenario),
                "rto_s": scenario.rto_s,
                "passed": scenario.passed,
                "took_s": round(scenario.took_s, 1),
            }
            for scenario in report.scenarios
        ],
    }


def junit(report: DrillReport) -> str:
    """Returns JUnit's XML: a suite for each scenario, a test for each promise."""
    root = ElementTree.Element("testsuites", name=f"repl drill {_text(report.topology)}")
    for scenario in report.scenarios:
        broken = [promise for promise in scenario.promises if not promise.kept]
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
                message = f"wanted {promise.wanted}, measured {promise.measured}: {promise.why}"
                ElementTree.SubElement(case, "failure", message=_text(message))
        steps = ElementTree.SubElement(suite, "testcase", classname=_text(scenario.name), name="steps")
        if scenario.problem:
            ElementTree.SubElement(steps, "error", message=_text(scenario.problem))
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def metrics(report: DrillReport, at_s: float, last_success_s: float | None) -> str:
    """Returns metrics in Prometheus' text format, for the textfile collector of its node exporter.

    The times are in seconds since 1970.
    """
    topology = _text(report.topology).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    live = report.against == LIVE  # reading proves less than a drill: it must not silence the alert
    success_s = at_s if report.passed else last_success_s
    every_s = report.every_ms and report.every_ms / 1000
    values: list[tuple[str, str, float | None]] = [
        ("repl_drill_last_run_timestamp", "When the last drill ended.", at_s),
        ("repl_drill_last_success_timestamp", "When a drill last passed.", success_s),
        ("repl_drill_passed", "1 if the last drill passed.", int(report.passed)),
        ("repl_drill_rto_seconds", "The longest time until consumers read on.", report.rto_s),
        ("repl_drill_rpo_records", "The most records that did not arrive.", report.rpo_records),
        ("repl_drill_every_seconds", "How often a drill must pass.", every_s),
    ]
    lines = []
    for name, about, value in values:
        if live:
            if name in _OF_DRILLS_ALONE:
                continue
            name = name.replace("repl_drill_", "repl_drill_live_")
        if value is not None:
            shown = f"{value:.1f}".removesuffix(".0")
            lines += [f"# HELP {name} {about}", f"# TYPE {name} gauge"]
            lines.append(f'{name}{{topology="{topology}"}} {shown}')
    return "\n".join(lines) + "\n"


def page(report: DrillReport) -> str:
    """Returns one page that needs nothing else."""
    longest = largest(scenario.took_s for scenario in report.scenarios) or 1.0
    template = page_environment(Path(__file__).parent).get_template("drill.html.j2")
    return template.render(report=report, summary=summary(report), figures=figures, longest=longest)


def history_screen(drills: Sequence[StoredDrill], width: int | None) -> Iterator[Text]:
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
    rows: list[Row] = []
    last: dict[tuple[str, str], tuple[DrillReport, Scenario]] = {}
    for drill in drills:
        report = drill.report
        runs = {(report.against, scenario.name): scenario for scenario in report.scenarios}
        before = [(*last[key], scenario) for key, scenario in runs.items() if key in last]
        changes = list(_changes([(old, scenario) for _, old, scenario in before]))
        if any(earlier.digest != report.digest for earlier, _, _ in before):
            changes.append("the topology was changed")
        rows.append(
            [
                report.started_at,
                report.against,
                report.features or "standard",
                Cell("passed", GOOD) if report.passed else Cell("failed", BAD),
                str(len(report.scenarios)),
                rto_text(report),
                UNKNOWN if report.rpo_records is None else f"{report.rpo_records:,.0f}",
                report.digest[:19],
                drill.signature,
                "; ".join(changes),
            ]
        )
        last |= {key: (report, scenario) for key, scenario in runs.items()}
    yield from table(columns, rows, width)


def _changes(pairs: Sequence[tuple[Scenario, Scenario]]) -> Iterator[str]:
    """Yields what is different: figures, and promises that broke or are kept again.

    A pair is the last run of a scenario, and this one.
    """
    for name, figure, unit in (("RTO", "rto_s", " s"), ("RPO", "rpo_records", "")):
        old = largest(getattr(before, figure) for before, _ in pairs)
        new = largest(getattr(scenario, figure) for _, scenario in pairs)
        if old is not None and new is not None and round(new - old, 1):
            yield f"{name} {new - old:+,.1f}".removesuffix(".0") + unit
    for before, scenario in pairs:
        was = {promise.text for promise in before.promises if not promise.kept}
        now = {promise.text for promise in scenario.promises if not promise.kept}
        kept = {promise.text for promise in scenario.promises if promise.kept}
        yield from (f"broken: {scenario.name}: {text}" for text in sorted(now - was))
        yield from (f"kept again: {scenario.name}: {text}" for text in sorted(was & kept))


def _headline(scenario: Scenario) -> Text:
    shown = ", ".join(f"{name} {value}" for name, value in figures(scenario))
    mark, style = ("passed", GOOD) if scenario.passed else ("failed", BAD)
    return Text.assemble((f"{one_line(scenario.name)}: ", "bold"), (mark, style), f" ({shown})")


def steps_document(steps: Steps) -> dict[str, Any]:
    """Returns all steps as JSON, each with its sentence and what it does."""
    return {
        "steps": [
            {"step": text, "kind": heading, "does": about}
            for heading, rows in steps.items()
            for text, about in rows
        ]
    }


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
    return "".join(sign if sign.isprintable() or sign in _ALLOWED else "?" for sign in text)

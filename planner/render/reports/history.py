"""The output of `repl history`: the applies that the clusters remember, as text and as JSON. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from rich.text import Text

from planner.model.address import Kind
from planner.model.step import ApplyRecord, Result, Step, StepResult
from planner.plan.steps.registry import Own
from planner.render.readable import LARGEST, iso_time, one_line
from planner.render.reports.fields import json_fields
from planner.render.table import Column, table


def ended(applied: ApplyRecord) -> str:
    """Returns the result. An apply without one still runs or was killed; the clusters can't tell which."""
    return applied.result or "not finished"


def counts(applied: ApplyRecord) -> dict[str, int]:
    """Returns the number of steps by result. A step without a record was not started."""
    recorded = Counter(outcome.result.value for outcome in applied.outcomes.values())
    if unknown := applied.total - sum(recorded.values()):
        recorded[Result.NOT_STARTED.value] += unknown
    return dict(sorted(recorded.items()))


def flow_states(applied: ApplyRecord) -> dict[str, str]:
    """Returns the state in which the apply left each flow that it changed, such as `failed_over`."""
    return {
        step.address.name: step.entry.spec["state"]
        for step in applied.steps
        if isinstance(step, Own) and step.address.kind is Kind.FLOW and "state" in step.entry.spec
    }


_COLUMNS = (
    Column("ID"),
    Column("STARTED"),
    Column("BY"),
    Column("TOPOLOGY", spare=2),
    Column("MODE", spare=1),
    Column("RESULT"),
    Column("STEPS"),
    Column("COMMIT", spare=3),
)


def screen(history: Sequence[ApplyRecord], width: int | None) -> Iterator[Text]:
    """Yields a line for each apply, the newest first. `history` begins with the oldest."""
    if not history:
        yield Text("Nothing was applied yet.")
        return
    rows = [
        (
            applied.id,
            iso_time(applied.started_ms),
            f"{applied.user}@{applied.host}",
            applied.topology,
            applied.mode,
            ended(applied),
            ", ".join(f"{number} {word}" for word, number in counts(applied).items()),
            (applied.git or "")[:12],
        )
        for applied in reversed(history)
    ]
    yield from table(_COLUMNS, rows, width)


def one_text(applied: ApplyRecord) -> str:
    """Returns one apply with all its steps."""
    lines = [
        f"{applied.id}  {ended(applied)}",
        f"  topology  {applied.topology} ({applied.mode})",
        f"  plan      {applied.plan}",
        f"  by        {applied.user}@{applied.host}, pid {applied.pid}",
        f"  commit    {applied.git or '(not in a Git repository)'}",
        f"  clusters  {', '.join(f'{name} ({cid})' for name, cid in sorted(applied.clusters.items()))}",
        f"  started   {iso_time(applied.started_ms)}",
    ]
    if applied.finished_ms is not None:
        took_ms = applied.finished_ms - applied.started_ms
        took = f"{took_ms / 1000:.1f} s" if abs(took_ms) <= LARGEST else f"{took_ms} ms"
        lines.append(f"  finished  {iso_time(applied.finished_ms)} ({took})")
    lines += ["", *_steps(applied)]
    return "\n".join(map(one_line, lines))


def _steps(applied: ApplyRecord) -> list[str]:
    lines = []
    for step in applied.steps:
        recorded = applied.outcomes.get(step.id)
        result = recorded.result if recorded is not None else "not started"
        why = f": {recorded.why}" if recorded is not None and recorded.why else ""
        lines.append(f"  {result:<12}{step}{why}")
    return lines


def document(history: Sequence[ApplyRecord], *, with_steps: bool) -> dict[str, Any]:
    return {"applies": [_apply_json(applied, with_steps=with_steps) for applied in history]}


def _apply_json(applied: ApplyRecord, *, with_steps: bool) -> dict[str, Any]:
    recorded: dict[str, Any] = {
        **json_fields(applied, "id", "topology", "mode", "plan", "user", "host", "pid"),
        "git_commit": applied.git,
        "clusters": dict(applied.clusters),
        "started": iso_time(applied.started_ms),
        "finished": None if applied.finished_ms is None else iso_time(applied.finished_ms),
        "result": applied.result,
        "steps_by_result": counts(applied),
    }
    if with_steps:
        recorded["steps"] = [_step(applied, step) for step in applied.steps]
    return recorded


def _step(applied: ApplyRecord, step: Step) -> dict[str, Any]:
    outcome = applied.outcomes.get(step.id, StepResult(Result.NOT_STARTED))
    return {
        "step": step.id,
        "address": str(step.address),
        "result": outcome.result.value,
        "why": outcome.why,
        "seconds": outcome.seconds,
    }

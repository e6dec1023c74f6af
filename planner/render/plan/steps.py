"""The steps that an apply will execute, as text: each with all that it does. Pure."""

from collections.abc import Iterator, Mapping
from typing import assert_never

from planner.diff.display import displayed_values
from planner.diff.record import recorded_flow
from planner.diff.spec_values import flow_values, job_values, launcher_values
from planner.diff.values import readable
from planner.model.address import Kind
from planner.model.change import SENSITIVE, Change
from planner.model.plan import Plan
from planner.model.step import (
    AlterConfigs,
    CreateAcl,
    CreateTopic,
    DeleteAcl,
    DeleteTopic,
    Disown,
    GrowPartitions,
    LaunchJob,
    Own,
    Reassign,
    ReconfigureJob,
    Step,
    StopJob,
    describe,
)
from planner.model.topology import OnRemove, looks_secret
from planner.plan.agreement.jobs import launch_of
from planner.render.plan.words import plural
from runtime.contract.spec import jobspec

NOT_READABLE = "(not readable)"


def steps_text(plan: Plan) -> Iterator[str]:
    """Yields the clusters that are written to, then every step in order."""
    written = sorted({step.cluster for step in plan.steps})
    yield f"{plan.topology}: repl executes {plural(len(plan.steps), 'step')}:"
    for name in written:
        reached = plan.connections.get(name)
        address = reached.bootstrap if reached is not None else "no address"
        yield f"  at {name}: {address}, cluster id {plan.clusters.get(name, '')}"
    changes = {change.address: change for change in plan.changes}
    for step in plan.steps:
        details = "; ".join(one for one in _details(step, _hidden(changes.get(step.address))) if one)
        elsewhere = f" at {step.cluster}" if step.address.cluster is None else ""
        yield f"  {describe(step)}{elsewhere}" + (f": {details}" if details else "")
    yield ""


def _hidden(change: Change | None) -> frozenset[str]:
    """Returns the settings whose values the broker never returns."""
    return frozenset(one.key for one in change.fields if one.sensitive) if change is not None else frozenset()


def _details(step: Step, hidden: frozenset[str]) -> Iterator[str]:
    """Yields what a step does, in parts; empty ones are dropped."""
    match step:
        case CreateTopic() | GrowPartitions() | AlterConfigs() | Reassign() | DeleteTopic():
            yield from _topic_details(step, hidden)
        case CreateAcl() | DeleteAcl():
            yield step.rule.name
        case Own():
            yield from _remembered(step)
        case Disown():
            yield "no longer managed"
        case LaunchJob() | ReconfigureJob():
            yield from _job(step.spec)
        case StopJob():
            launch = launch_of(step.launch)
            yield NOT_READABLE if launch is None else _fields(launcher_values(launch))
        case _:
            assert_never(step)


def _topic_details(
    step: CreateTopic | GrowPartitions | AlterConfigs | Reassign | DeleteTopic, hidden: frozenset[str]
) -> Iterator[str]:
    match step:
        case CreateTopic():
            yield f"partitions {_or_default(step.partitions)}, replication {_or_default(step.replication)}"
            yield _settings(step.config, hidden)
        case GrowPartitions():
            yield f"{step.old} -> {step.new} partitions"
        case AlterConfigs():
            yield _settings(step.set, hidden)
            yield "back to the cluster's own: " + ", ".join(step.unset) if step.unset else ""
        case Reassign():
            yield f"{_counts(step.old)} -> {_counts(step.replicas)} replicas"
        case DeleteTopic():
            yield f"with its records (topic id {step.topic_id})"


def _or_default(count: int | None) -> str:
    return "as the cluster has it" if count is None else str(count)


def _settings(values: Mapping[str, str], hidden: frozenset[str]) -> str:
    return ", ".join(
        f"{key}={SENSITIVE if key in hidden or looks_secret(key) else readable(key, value)}"
        for key, value in sorted(values.items())
    )


def _counts(replicas: tuple[tuple[int, ...], ...]) -> str:
    return ", ".join(str(count) for count in sorted({len(one) for one in replicas}))


def _remembered(step: Own) -> Iterator[str]:
    """Yields what later plans read from the registry entry.

    A flow's settings are shown here, since its job's spec holds them as one text.
    """
    entry = step.entry
    if step.address.kind is Kind.FLOW:
        flow = recorded_flow(entry)
        yield NOT_READABLE if flow is None else _fields(flow_values(flow))
        return
    yield "protected" if entry.protect else ""
    yield "deleted when it leaves the topology" if entry.on_remove is OnRemove.DELETE else ""


def _job(text: str) -> Iterator[str]:
    try:
        spec = jobspec.decode(text)
    except jobspec.BadJobSpec:
        yield NOT_READABLE
        return
    yield _fields(job_values(spec))


def _fields(fields: Mapping[str, object]) -> str:
    return ", ".join(
        f"{key}={', '.join(value) if isinstance(value, tuple) else value}"
        for key, value in displayed_values(fields).items()
        if value not in ((), "")
    )

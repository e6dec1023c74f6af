"""Checks that the steps of jobs and flows are what a plan shows: the job spec, field by field."""

from collections.abc import Iterator, Mapping
from pathlib import PurePath

import msgspec

from planner.diff.compare import same
from planner.diff.fields import with_added
from planner.diff.record import JOB, LAUNCH, STATE, recorded_flow
from planner.diff.typed_values import flow_values, job_values, launcher_values
from planner.diff.values import displayed
from planner.model.address import Address, Kind, flow_address
from planner.model.plan import SENSITIVE, Action, Change, Plan, PlannedFlow, Value
from planner.model.step import LaunchJob, Own, ReconfigureJob, StopJob
from planner.model.topology import RUNNING, Cluster, SecretRef, Setting, looks_secret
from runtime.contract.spec import jobspec
from runtime.contract.spec.jobspec import ClusterSpec, FlowSpec, JobSpec, LaunchSpec

# What a new job always shows, and what it shows where it is not empty.
NEW = ("flows", "launcher", "master", "memory", "slots", "metrics")
NEW_IF_SET = ("conf", "options")


def job_problems(step: LaunchJob | ReconfigureJob | StopJob, plan: Plan, change: Change) -> Iterator[str]:
    """Yields where the step of a job differs from what the plan shows."""
    if step.job != step.address.name:
        yield f"it names the job {step.job!r}"
        return
    match step:
        case StopJob():
            yield from _stop_problems(step, plan, change)
        case LaunchJob() | ReconfigureJob():
            try:
                spec = jobspec.decode(step.spec)
            except jobspec.BadJobSpec as wrong:
                yield f"its job spec can't be read ({wrong})"
                return
            yield from _spec_problems(step, spec, plan, change)


def _spec_problems(
    step: LaunchJob | ReconfigureJob, spec: JobSpec, plan: Plan, change: Change
) -> Iterator[str]:
    if (spec.job, spec.topology, spec.destination) != (step.job, plan.topology, step.cluster):
        yield f"its spec is of the job {spec.job} of {spec.topology} at {spec.destination}"
    if change.action is Action.DELETE:
        if running := [flow.name for flow in spec.flows if flow.state in RUNNING]:
            yield f"the job ends, and {', '.join(running)} would still run"
    else:
        yield from _job_field_problems(spec, change)
    for name, cluster in sorted(spec.clusters.items()):
        yield from _cluster_problems(name, cluster, plan)
    changes = {one.address: one for one in plan.changes}
    for flow in spec.flows:
        yield from _flow_problems(flow, changes.get(flow_address(flow.name)))
    yield from _route_problems(spec, plan, changes)
    flows = {one.name: one for one in plan.flows}
    known = {one.name: _topics(flows.get(one.name)) for one in spec.flows if one.state == "active"}
    if dict(step.topics) != known:
        yield "it waits for other topics than the plan's flows have"


def _topics(flow: PlannedFlow | None) -> int:
    return flow.topics or 0 if flow is not None else 0


def _job_field_problems(spec: JobSpec, change: Change) -> Iterator[str]:
    """Compares the spec with `after`, and with the `fields` that people read."""
    after, before = change.after or {}, change.before
    state = with_added(job_values(spec), after)
    fields = {one.path[0]: one for one in change.fields if len(one.path) == 1}
    for key, value in state.items():
        if key in after and not is_shown(key, after[key], value):
            yield f"its {key} is not what is shown"
        elif key not in after and not _changes_destination(change):
            yield f"its {key} is not shown"
        elif key in fields and not is_shown(key, fields[key].new, value):
            yield f"its {key} is not what is shown"
        elif key not in fields and _must_be_shown(key, value, before, change):
            yield f"its {key} changes, and that is not shown"


def _changes_destination(change: Change) -> bool:
    """Returns whether the job gets another destination."""
    return any(one.path == ("destination",) for one in change.fields)


def _must_be_shown(key: str, value: Value, before: Mapping[str, object] | None, change: Change) -> bool:
    """Returns whether a field must be among those that the change shows."""
    if change.action is Action.CREATE:
        return key in NEW or (key in NEW_IF_SET and bool(value))
    return before is not None and key in before and not is_shown(key, before[key], value)


def is_shown(name: str, shown: object, value: Value) -> bool:
    """Returns whether a plan shows this value of a field. A plan file of an older release holds its text."""
    path = (name,)
    return same(path, shown, value) or same(path, shown, displayed(path, value))


def _cluster_problems(name: str, spec: ClusterSpec, plan: Plan) -> Iterator[str]:
    """Yields where the job connects to another address, or with other settings, than the plan."""
    if name in plan.clusters and spec.id != plan.clusters[name]:
        yield f"its cluster {name} is {spec.id}, and the plan saw {plan.clusters[name]}"
    known = plan.connections.get(name)
    if known is None:
        return
    if spec.bootstrap != known.bootstrap:
        yield f"it reaches {name} at {spec.bootstrap}, and the plan at {known.bootstrap}"
    for key in sorted(spec.client.keys() | known.client.keys()):
        if not _same_setting(key, spec.client.get(key), known):
            yield f"its client setting {key} of {name} is not the one of the plan"


def _same_setting(key: str, stated: jobspec.Setting | None, known: Cluster) -> bool:
    """Compares a client setting. The path of a file is absolute in a job spec: a job has another folder."""
    setting: Setting | None = known.client.get(key)
    match setting:
        case SecretRef(kind="env", name=name):
            return stated == {"env": name}
        case SecretRef(name=name):
            path = stated.get("file") if isinstance(stated, dict) and stated.keys() == {"file"} else None
            return path is not None and PurePath(path).name == PurePath(name).name
        case str():
            return stated == (SENSITIVE if looks_secret(key) else setting)
        case None:
            return False


def _flow_problems(flow: FlowSpec, change: Change | None) -> Iterator[str]:
    if change is None:
        yield f"it runs flow.{flow.name}, for which no change is shown"
        return
    if change.after is None:
        if change.action is not Action.UNKNOWN:
            yield f"it runs flow.{flow.name}, which is not shown"
        return
    yield from _flow_field_problems(flow, change)


def _flow_field_problems(flow: FlowSpec, change: Change) -> Iterator[str]:
    after, before = change.after or {}, change.before
    fields = {one.path[0]: one for one in change.fields if len(one.path) == 1}
    for key, value in with_added(flow_values(flow), after).items():
        field = fields.get(key)
        told = [after[key]] if key in after else []
        told += [field.new] if field is not None else []
        if key not in after or not all(is_shown(key, one, value) for one in told):
            yield f"{key} of flow.{flow.name} is not what is shown"
        elif field is None and before and key in before and not is_shown(key, before[key], value):
            yield f"{key} of flow.{flow.name} changes, and that is not shown"


def _route_problems(spec: JobSpec, plan: Plan, changes: Mapping[Address, Change]) -> Iterator[str]:
    """Yields where the routes differ from the plan's flows: routes of other flows decide what a
    flow takes.
    """
    flows = {one.name: one for one in plan.flows if not one.endpoint}
    own = {one.name: one for one in spec.flows if one.folder is None}
    for one in plan.flows:
        after = _after(changes.get(flow_address(one.name)))
        kinds = {"lines" if one.from_files else "files"} if one.endpoint else set()
        if after and {"files", "lines"} & after.keys() != kinds:
            yield f"flow.{one.name} goes to another kind of endpoint than is shown"
    routes = {route.name: route for route in spec.routes}
    if len(routes) != len(spec.routes) or routes.keys() != flows.keys():
        yield "its routes are not the flows of the plan"
        return
    for name, route in routes.items():
        ends = (flows[name].source_cluster, flows[name].destination_cluster)
        known = own.get(name)
        shown = flow_values(known) if known is not None else (_after(changes.get(flow_address(name))))
        stated = flow_values(
            FlowSpec(
                name=name,
                source=route.source,
                destination=route.destination,
                topics=route.topics,
                rename=route.rename,
            )
        )
        keys = ("topics.include", "topics.exclude", "topics.default_exclude", "rename")
        if ends != (route.source, route.destination) or any(
            key in shown and not is_shown(key, shown[key], stated[key]) for key in keys
        ):
            yield f"its route of flow.{name} is not the one that is shown"
        original = routes.get(route.reverse_of or "")
        if original is not None and original.undoes is None and route.undoes != original.topics:
            yield f"its route of flow.{name} does not undo flow.{route.reverse_of}"


def _after(change: Change | None) -> Mapping[str, object]:
    return (change.after or {}) if change is not None else {}


def _stop_problems(step: StopJob, plan: Plan, change: Change) -> Iterator[str]:
    """Yields where a job would be stopped by another launcher than the one that started it."""
    launch = launch_of(step.launch)
    if launch is None:
        yield "how it was started can't be read"
        return
    starts = [
        jobspec.decode(one.spec).launch
        for one in plan.steps
        if isinstance(one, LaunchJob) and one.id in step.needs
    ]
    if starts:
        if launch not in starts:
            yield "it was started by other launch settings"
        return
    before = change.before or {}
    for key, value in launcher_values(launch).items():
        if key in before and not is_shown(key, before[key], value):
            yield f"its {key} is not the one that is shown"


def launch_of(text: str) -> LaunchSpec | None:
    """Returns how a job was started, from its JSON text; None if the text can't be read."""
    if not text:
        return LaunchSpec()
    try:
        return msgspec.json.decode(text, type=LaunchSpec)
    except (msgspec.DecodeError, RecursionError):
        return None


def recorded_problems(step: Own, plan: Plan, change: Change) -> Iterator[str]:
    """Yields where the registry entry of a flow or a job differs from the plan."""
    entry = step.entry
    if step.address.kind is Kind.JOB:
        launch = launch_of(entry.spec.get(LAUNCH, ""))
        shown = change.after or {}
        if launch is None or entry.spec.get(STATE) != "running":
            yield "what it registers can't be read"
        elif any(
            key in shown and not is_shown(key, shown[key], value)
            for key, value in launcher_values(launch).items()
        ):
            yield "it registers other launch settings than are shown"
        return
    flow = recorded_flow(entry)
    planned = {one.name: one for one in plan.flows}.get(step.address.name)
    if flow is None or flow.name != step.address.name or entry.spec.get(STATE) != flow.state:
        yield "what it registers can't be read"
    elif planned is None or (planned.job, planned.destination_cluster) != (entry.spec.get(JOB), step.cluster):
        yield "it registers another job or destination than the flow has"
    else:
        yield from _flow_problems(flow, change)

"""Has Spark's analyzer check the transforms of flows, before a plan shows them.

Spark runs in a process of its own. It takes seconds, so a transform that a job runs already is not checked
again.
"""

from collections.abc import Iterator
from pathlib import Path

from planner.graph.jobs import transform_of
from planner.model.address import flow_address
from planner.model.diagnostic import Diagnostic, Failure, error
from planner.model.observed import Observed
from planner.model.topology import Topology
from planner.workflows.interaction import ProgressHandler, silent
from planner.workflows.one_off import on_spark
from runtime.contract.spec.transform import TransformSpec
from runtime.contract.views.transform_view import CheckRequest, TransformProblem, decode_outcome, encode

_CODE = "transform"
_checked: set[str] = set()  # what this process has checked


def check_transforms(
    topology: Topology, observed: Observed | None = None, progress: ProgressHandler = silent
) -> None:
    """Failure where Spark refuses a transform that no job runs yet."""
    wanted = {
        name: spec
        for name, flow in topology.flows.items()
        if (spec := transform_of(flow)) is not None
        and not _runs(name, spec, observed)
        and repr(spec) not in _checked
    }
    if not wanted:
        return
    from runtime import sql

    main = Path(sql.__file__).with_name("main.py")
    answer = on_spark(main, encode(CheckRequest(wanted)), "sql: ", progress)
    problems = decode_outcome(answer).problems
    if problems:
        raise Failure(tuple(diagnostics_of(problems, topology)))
    _checked.update(map(repr, wanted.values()))


def _runs(flow: str, transform: TransformSpec, observed: Observed | None) -> bool:
    """Returns whether a job of the flow's destination was started with exactly this transform."""
    if observed is None:
        return False
    for name in observed.clusters:
        cluster = observed.reachable(name)
        for job in cluster.jobs if cluster is not None else ():
            running = {one.name: one.transform for one in job.spec.flows} if job.spec is not None else {}
            if running.get(flow) == transform:
                return True
    return False


def diagnostics_of(problems: list[TransformProblem], topology: Topology) -> Iterator[Diagnostic]:
    """Yields an error for each problem, at the flow that has it."""
    for one in problems:
        flow = topology.flows[one.flow]
        place = f" (line {one.line}, column {one.column})" if one.line else ""
        yield error(
            f"{one.part}{place}: {one.why}",
            "columns are key, value, headers, topic, partition, offset, timestamp and timestamp_type",
            address=str(flow_address(one.flow)),
            source=flow.source,
            code=_CODE,
        )

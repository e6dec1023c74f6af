"""The applies that the clusters remember: `repl history` lists them, `repl plan --rollback ID` undoes one.

A rollback is a plan: the steps of the apply × what the clusters hold now → the inverse steps.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec import Struct

from planner.config import load
from planner.kafka import ClusterClient, ClusterEndpoint, run
from planner.model.diagnostic import Diagnostic, Failure, error, warning
from planner.model.observed import Unreachable
from planner.model.plan import Mode, Plan
from planner.model.step import ApplyRecord
from planner.model.topology import Cluster, Topology
from planner.observe import ReadOptions, identities, observe
from planner.plan.recheck import required_keys
from planner.plan.remake import remake
from planner.plan.staleness import compared_keys, read_request
from planner.state.history import merge, read_history
from planner.state.internal_topics import read_registry
from planner.workflows.interaction import DiagnosticCollector, Noticed, ProgressHandler, silent
from planner.workflows.observing import endpoints_of
from planner.workflows.plans import inputs_now
from planner.workflows.topology import TopologyRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRequest(TopologyRequest):
    """A request for all applies of a topology's clusters, or for the one whose id starts with `apply_id`."""

    apply_id: str | None = None


class HistoryResult(Struct, frozen=True):
    """The applies, oldest first. The diagnostics name the clusters that could not be read."""

    applies: tuple[ApplyRecord, ...]
    diagnostics: tuple[Diagnostic, ...] = ()


def history(request: HistoryRequest, progress: ProgressHandler = silent) -> HistoryResult:
    """Reads which applies wrote to the clusters. A cluster that does not answer is left out and named."""
    topology = load(request.path, request.var_files)
    found = DiagnosticCollector(progress)
    applies = histories(topology.clusters, endpoints_of(topology.clusters.values()), found)
    if request.apply_id is not None:
        applies = (find(applies, request.apply_id),)
    return HistoryResult(applies, found.found)


def histories(
    clusters: Mapping[str, Cluster],
    endpoints: Mapping[str, ClusterEndpoint],
    progress: ProgressHandler = silent,
) -> tuple[ApplyRecord, ...]:
    """Returns the joined histories. Failure where no cluster could be read."""
    read, problems = run(_histories(clusters, endpoints, progress))
    if not read and problems:
        raise Failure(problems)
    for problem in problems:
        progress(Noticed(warning(problem.summary, problem.way_out)))
    return merge(read)


async def _histories(
    clusters: Mapping[str, Cluster], endpoints: Mapping[str, ClusterEndpoint], progress: ProgressHandler
) -> tuple[list[tuple[ApplyRecord, ...]], list[Diagnostic]]:
    """Returns the history of each cluster that can be read, and an error for each other one."""
    histories = []
    problems: list[Diagnostic] = []
    for name, found in (await identities(clusters, endpoints)).items():
        if isinstance(found, Unreachable):
            problems.append(error(f"{name} can't be read: {found.why}", found.way_out))
            continue
        try:
            async with ClusterClient(endpoints[name]) as client:
                histories.append(await read_history(client, lambda notice: progress(Noticed(notice))))
        except Failure as failure:
            problems += failure.diagnostics
    return histories, problems


def find(history: tuple[ApplyRecord, ...], apply_id: str) -> ApplyRecord:
    """Returns the apply of this id, or of an id that starts so. Failure where there is none, or several."""
    found = [one for one in history if one.id.startswith(apply_id)]
    if len(found) == 1:
        return found[0]
    what = "several applies begin" if found else "no apply begins"
    raise Failure(error(f"{what} with {apply_id!r}", "repl history lists their ids"))


def rollback_plan(
    topology: Topology, apply_id: str, timeout_ms: int, progress: ProgressHandler = silent
) -> Plan:
    """Returns the plan that takes back an apply. Failure: the id fits no apply, or several."""
    endpoints = endpoints_of(topology.clusters.values())
    applied = find(histories(topology.clusters, endpoints, progress), apply_id)
    keys = compared_keys(applied.steps)
    wanted = read_request({name for name, _ in keys}, keys, required_keys(topology.policies))
    options = ReadOptions(timeout_ms / 1000, read_registry=read_registry, jobs_of=topology.name)
    observed = run(observe(topology.clusters, endpoints, lambda _: wanted, options))
    return remake(inputs_now(Mode.ROLLBACK, topology, observed, applied=applied))

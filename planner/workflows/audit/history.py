"""The applies that the clusters remember, as `repl history` lists them."""

from collections.abc import Mapping

from msgspec import Struct

from planner.kafka import ClusterClient
from planner.model.diagnostic import Diagnostic, Failure, error, warning
from planner.model.observed import Unreachable
from planner.model.step import ApplyRecord
from planner.model.topology import Cluster
from planner.observe.cluster import ReadOptions
from planner.observe.observer import identities
from planner.state.history import merge, read_history
from planner.workflows.audit.access import endpoints_of
from planner.workflows.edge import Workflow
from planner.workflows.interaction import DiagnosticCollector, ProgressHandler, silent
from planner.workflows.requests import HistoryRequest
from planner.workflows.topology import load_topology


class HistoryResult(Struct, frozen=True):
    """The applies, oldest first. The diagnostics name the clusters that could not be read."""

    applies: tuple[ApplyRecord, ...]
    diagnostics: tuple[Diagnostic, ...] = ()


@Workflow
async def history(request: HistoryRequest, progress: ProgressHandler = silent) -> HistoryResult:
    """Reads which applies wrote to the clusters. A cluster that does not answer is left out and named."""
    topology = load_topology(request)
    reported = DiagnosticCollector(progress)
    applies = await histories(topology.clusters, request.timeout_s, reported)
    if request.apply_id is not None:
        applies = (find(applies, request.apply_id),)
    return HistoryResult(applies, reported.diagnostics)


async def histories(
    clusters: Mapping[str, Cluster], timeout_s: float, progress: ProgressHandler = silent
) -> tuple[ApplyRecord, ...]:
    """Returns the joined histories. Failure where no cluster could be read."""
    endpoints = endpoints_of(clusters.values())
    read: list[tuple[ApplyRecord, ...]] = []
    problems: list[Diagnostic] = []
    for name, identity in (await identities(clusters, endpoints, ReadOptions(timeout_s))).items():
        if isinstance(identity, Unreachable):
            problems.append(error(f"{name} can't be read: {identity.why}", identity.hint))
            continue
        try:
            async with ClusterClient(endpoints[name], timeout_s) as client:
                read.append(await read_history(client, progress))
        except Failure as failure:
            problems.extend(failure.diagnostics)
    if not read and problems:
        raise Failure(problems)
    for problem in problems:
        progress(warning(problem.summary, problem.hint))
    return merge(read)


def find(history: tuple[ApplyRecord, ...], apply_id: str) -> ApplyRecord:
    """Returns the apply of this id, or of an id that starts so. Failure where there is none, or several."""
    applies = [applied for applied in history if applied.id.startswith(apply_id)]
    if len(applies) == 1:
        return applies[0]
    what = "several applies begin" if applies else "no apply begins"
    raise Failure(error(f"{what} with {apply_id!r}", "repl history lists their ids"))

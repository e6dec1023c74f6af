"""`repl history`: the applies that each cluster remembers, joined."""

from collections.abc import Mapping
from dataclasses import dataclass

from planner.config import load
from planner.kafka import ClusterEndpoint
from planner.model.diagnostic import Diagnostic, Failure, error, warning
from planner.model.observed import Unreachable
from planner.model.step import ApplyRecord
from planner.model.topology import Cluster
from planner.observe import Observer
from planner.state.history import merge, read_history
from planner.state.planfile import step_of
from planner.workflows.clusters import endpoints_of
from planner.workflows.interaction import DiagnosticCollector, Noticed, ProgressHandler, silent
from planner.workflows.topology import TopologyRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRequest(TopologyRequest):
    """A request for all applies of a topology's clusters, or for the one whose id starts with `apply_id`."""

    apply_id: str | None = None


@dataclass(frozen=True, slots=True)
class HistoryResult:
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
    with Observer(clusters, endpoints) as observer:
        found = observer.identities()
    read = []
    problems = []
    for name, one in found.items():
        if isinstance(one, Unreachable):
            problems.append(error(f"{name} can't be read: {one.why}", one.way_out))
            continue
        try:
            read.append(read_history(endpoints[name], step_of, lambda one: progress(Noticed(one))))
        except Failure as failure:
            problems += list(failure.diagnostics)
    if not read and problems:
        raise Failure(problems)
    for problem in problems:
        progress(Noticed(warning(problem.summary, problem.way_out)))
    return merge(read)


def find(history: tuple[ApplyRecord, ...], apply_id: str) -> ApplyRecord:
    """Returns the apply of this id, or of an id that starts so. Failure where there is none, or several."""
    found = [one for one in history if one.id.startswith(apply_id)]
    if len(found) == 1:
        return found[0]
    what = "several applies begin" if found else "no apply begins"
    raise Failure(error(f"{what} with {apply_id!r}", "repl history lists their ids"))

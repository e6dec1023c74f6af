"""What the end of flows means for consumer groups: their positions, and the topics to subscribe to."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from planner.model.diagnostic import Failure, warning
from planner.model.topology import Flow, FlowState, GroupMode, Topology
from planner.workflows.interaction import Noticed, ProgressHandler, SubscriptionsRead

if TYPE_CHECKING:
    from runtime.audit.offsets.rehearsal import RehearsalRequest
    from runtime.contract.views.loss_view import GroupLoss, GroupTopics


def group_losses(topology: Topology, flows: Sequence[Flow], within_s: float) -> "list[GroupLoss]":
    """Returns, for each group of the flows that still run, where it would continue."""
    from planner.workflows.audit.requests import answered

    return answered(_losses(topology, flows, within_s))


def report_subscriptions(
    topology: Topology, flows: Sequence[Flow], timeout_ms: int, progress: ProgressHandler
) -> "tuple[GroupTopics, ...]":
    """Reports what the consumers of each group subscribe to at the destination of flows that ended.

    The apply is done by then: what can't be read is a warning.
    """
    from planner.workflows.audit.requests import answered

    try:
        groups = tuple(answered(_topics(topology, flows, timeout_ms / 1000)))
    except Failure as failure:
        for one in failure.diagnostics:
            progress(Noticed(warning(one.summary, one.way_out)))
        return ()
    progress(SubscriptionsRead(groups))
    return groups


async def _topics(topology: Topology, flows: Sequence[Flow], within_s: float) -> "list[GroupTopics]":
    from runtime.audit.offsets.rehearsal import subscriptions

    found = []
    for request in _requests(topology, flows, within_s):
        found += await subscriptions(request)
    return found


async def _losses(topology: Topology, flows: Sequence[Flow], within_s: float) -> "list[GroupLoss]":
    from runtime.audit.offsets.rehearsal import rehearse

    running = [flow for flow in flows if flow.state is not FlowState.FAILED_OVER]
    found = []
    for request in _requests(topology, running, within_s):
        found += await rehearse(request)
    return found


def _requests(topology: Topology, flows: Sequence[Flow], within_s: float) -> "Iterator[RehearsalRequest]":
    from planner.graph.routes import router_of
    from planner.workflows.audit.requests import cluster_access
    from runtime.audit.offsets.rehearsal import RehearsalRequest

    router = router_of(topology)
    own = _own_groups(topology)
    for flow in flows:
        if not flow.groups.sync:
            continue
        names = (flow.source_cluster, flow.destination_cluster)
        access = cluster_access((topology.clusters[name] for name in names), given_up=names[0])
        yield RehearsalRequest(
            flow=flow.name,
            router=router,
            source=access[names[0]],
            destination=access[names[1]],
            selects=_selects(flow, own),
            by_time=flow.groups.mode is GroupMode.TIMESTAMP,
            within_s=within_s,
        )


def _own_groups(topology: Topology) -> frozenset[str]:
    """Returns the groups in which flows commit their own progress: no consumer belongs to them."""
    named = {flow.origin_commits.group for flow in topology.flows.values() if flow.origin_commits}
    return frozenset(named | {f"repl.{name}" for name in topology.flows})


def _selects(flow: Flow, own: frozenset[str]) -> Callable[[str], bool]:
    from runtime.contract.groups.translate import group_selector
    from runtime.contract.spec.jobspec import GroupsSpec, SelectionSpec

    select = flow.groups.select
    selection = SelectionSpec(
        include=list(select.include), exclude=list(select.exclude), default_exclude=select.default_exclude
    )
    selector = group_selector(GroupsSpec(selection=selection))
    return lambda group: group not in own and selector.answer(group).taken

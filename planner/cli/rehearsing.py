"""`repl failover --rehearse`: what would become of the groups, and how long it would take."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import click

from planner.cli.app import show
from planner.model.diagnostic import ExitCode, Failure, warning
from planner.model.topology import Flow, FlowState, GroupMode, Topology

if TYPE_CHECKING:
    from runtime.audit.offsets.rehearsal import RehearsalRequest
    from runtime.contract.views.loss_view import GroupLoss, GroupTopics
    from runtime.contract.views.status_view import StatusView


def show_groups(
    topology: Topology, flows: Sequence[Flow], status: "StatusView", timeout: int, *, as_json: bool
) -> int:
    import msgspec

    from planner.cli.answers import answered
    from planner.cli.printing import print_lines
    from planner.render.reports.loss import duration_line, group_lines
    from runtime.contract.views.loss_view import GroupTopics

    groups = answered(_groups(topology, flows, timeout / 1000))
    if as_json:
        for one in groups:
            told = {"version": 1, "event": "group", **msgspec.to_builtins(one)}
            click.echo(json.dumps(told, ensure_ascii=False))
        return ExitCode.DONE
    click.echo("What becomes of the groups, by partitions:")
    print_lines(lambda width: group_lines(groups, width))
    destinations = {flow.name: flow.destination_cluster for flow in flows}
    say_subscriptions(
        [
            GroupTopics(flow=one.flow, group=one.group, cluster=destinations[one.flow], topics=one.topics)
            for one in groups
        ]
    )
    names = {flow.job for flow in flows if flow.state is not FlowState.FAILED_OVER}
    click.echo(f"\n{duration_line([(job.name, job.up) for job in status.jobs if job.name in names])}")
    click.echo("Nothing was changed.")
    return ExitCode.DONE


def show_subscriptions(topology: Topology, flows: Sequence[Flow], timeout: int, *, as_json: bool) -> None:
    """After the failover: what could not be read is a warning, for the failover itself is done."""
    import msgspec

    from planner.cli.answers import answered

    try:
        groups = answered(_subscriptions(topology, flows, timeout / 1000))
    except Failure as failure:
        show([warning(one.summary, one.way_out) for one in failure.diagnostics])
        return
    if as_json:
        for one in groups:
            told = {"version": 1, "event": "subscribe", **msgspec.to_builtins(one)}
            click.echo(json.dumps(told, ensure_ascii=False))
    else:
        say_subscriptions(groups)


def say_subscriptions(groups: "Sequence[GroupTopics]") -> None:
    from planner.cli.printing import print_lines
    from planner.render.reports.loss import subscription_lines

    if groups:
        click.echo("\nWhat the consumers of each group subscribe to at the destination:")
        print_lines(lambda _: subscription_lines(groups))


async def _subscriptions(topology: Topology, flows: Sequence[Flow], within_s: float) -> "list[GroupTopics]":
    from runtime.audit.offsets.rehearsal import subscriptions

    found = []
    for asked in _asked(topology, flows, within_s):
        found += await subscriptions(asked)
    return found


async def _groups(topology: Topology, flows: Sequence[Flow], within_s: float) -> "list[GroupLoss]":
    from runtime.audit.offsets.rehearsal import rehearse

    running = [flow for flow in flows if flow.state is not FlowState.FAILED_OVER]
    found = []
    for asked in _asked(topology, running, within_s):
        found += await rehearse(asked)
    return found


def _asked(topology: Topology, flows: Sequence[Flow], within_s: float) -> "Iterator[RehearsalRequest]":
    from planner.cli.status_asking import reaches_of
    from planner.graph.routes import router_of
    from runtime.audit.offsets.rehearsal import RehearsalRequest

    router = router_of(topology)
    own = _own(topology)
    for flow in flows:
        if not flow.groups.sync:
            continue
        names = (flow.source_cluster, flow.destination_cluster)
        reaches = reaches_of((topology.clusters[name] for name in names), given_up=names[0])
        yield RehearsalRequest(
            flow=flow.name,
            router=router,
            source=reaches[names[0]],
            destination=reaches[names[1]],
            selects=_selects(flow, own),
            by_time=flow.groups.mode is GroupMode.TIMESTAMP,
            within_s=within_s,
        )


def _own(topology: Topology) -> frozenset[str]:
    """Groups that only show how far a flow is."""
    named = {flow.origin_commits.group for flow in topology.flows.values() if flow.origin_commits}
    return frozenset(named | {f"repl.{name}" for name in topology.flows})


def _selects(flow: Flow, own: frozenset[str]) -> Callable[[str], bool]:
    from runtime.contract.groups.decisions import group_selector
    from runtime.contract.spec.jobspec import GroupsSpec, SelectionSpec

    select = flow.groups.select
    selection = SelectionSpec(
        include=list(select.include), exclude=list(select.exclude), default_exclude=select.default_exclude
    )
    selector = group_selector(GroupsSpec(selection=selection))
    return lambda group: group not in own and selector.answer(group).taken

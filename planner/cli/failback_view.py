"""What a failback tells before it asks: what the old primary holds and nobody else has."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from planner.cli.editing import FlowCommandOptions
from planner.graph.failback import Failback
from planner.model.diagnostic import Failure, error
from planner.model.topology import Topology

if TYPE_CHECKING:
    from runtime.contract.views.status_view import FlowStatusView, TopicStatusView


def show_left(topology: Topology, coming: Sequence[Failback], how: FlowCommandOptions) -> None:
    """Raises Failure where a side does not answer."""
    from planner.cli.status_asking import asked_of
    from runtime.audit.status.reader import read_status

    status = asyncio.run(read_status(asked_of(topology), 0, how.timeout / 1000))
    seen = {flow.name: flow for flow in status.flows}
    for one in coming:
        flow = seen[one.flow.name]
        if not flow.source_answers or not flow.destination_answers:
            raise Failure(
                error(
                    f"nothing can be copied back to {flow.source} yet: {flow.why}",
                    f"{flow.source} and {flow.destination} must both answer",
                    source=one.flow.source,
                )
            )
    left = [_left(seen[one.flow.name]) for one in coming if one.back is None or not _runs(one)]
    if how.as_json:
        for told in left:
            click.echo(json.dumps({"version": 1, "event": "left", **told}, ensure_ascii=False))
    elif left:
        click.echo(f"Records that {coming[0].flow.source_cluster} never sent, and that stay only there:")
        for told in left:
            click.echo(_line(told))
        click.echo()


def _runs(one: Failback) -> bool:
    return one.back is not None and one.back.state.value == "active"


def _left(flow: "FlowStatusView") -> dict[str, object]:
    kept = {topic.topic: left for topic in flow.topics if (left := _kept(topic))}
    return {"flow": flow.name, "records": sum(kept.values()), "topics": kept}


def _kept(topic: "TopicStatusView") -> int:
    """Also of topics that were promoted on their own, which lag no more."""
    beyond = (
        max(one.source_end - one.position, 0)
        for one in topic.partitions
        if one.source_end is not None and one.position is not None
    )
    return max(topic.lag_records or 0, sum(beyond))


def _line(told: dict[str, object]) -> str:
    return "".join(_words(told))


def _words(told: dict[str, object]) -> Iterator[str]:
    topics = told["topics"]
    assert isinstance(topics, dict)
    yield f"  flow.{told['flow']}  "
    if not topics:
        yield "none: all of them had arrived"
        return
    most = sorted(topics.items(), key=lambda item: -item[1])
    some = ", ".join(f"{topic} {records:,}" for topic, records in most[:3])
    more = f", and {len(most) - 3} more topics" if len(most) > 3 else ""
    yield f"up to {told['records']:,} records ({some}{more}); repl salvage {told['flow']} shows them"

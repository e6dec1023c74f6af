"""`repl status`: how replication stands, read from the clusters; with --watch, again and again."""

import sys
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import click
from msgspec.structs import replace

from planner.cli.command import Output, command
from planner.cli.output import emit, emit_event
from planner.model.diagnostic import ExitCode
from planner.workflows.options import DURATION, Option
from planner.workflows.requests import ReplicationStatusRequest

if TYPE_CHECKING:
    from rich.live import Live

    from planner.render.status import DetailLevel, FlowHistory
    from runtime.contract.results.status import ReplicationStatus

_REMEMBERED = 20


@command
def status(
    request: ReplicationStatusRequest,
    output: Output,
    watch: Annotated[
        bool, Option("--watch", "Read again and again until Ctrl-C, with what came before.")
    ] = False,
    every: Annotated[int, Option("--every", "How often --watch reads.", "DURATION", kind=DURATION)] = 2_000,
    topics: Annotated[bool, Option("--topics", "A line for each topic, too.")] = False,
    every_partition: Annotated[bool, Option("--all", "A line for each partition, too.")] = False,
) -> int:
    """Show jobs, flows, lag, rates and latency, and which partitions wait for a decision.

    All of it is read from the clusters: right also when a job is dead, or when one datacenter is down.
    Exit code: 0 done, 1 where a destination could not be read (the rest is shown).
    """
    from planner.render.status import DetailLevel
    from planner.workflows.audit.replication_status import status

    request = replace(request, every_offset=output.as_json)
    depth = DetailLevel.PARTITIONS if every_partition else DetailLevel.TOPICS if topics else DetailLevel.FLOWS
    if watch:
        import asyncio

        asyncio.run(_watch(request, every, depth, as_json=output.as_json))
        return ExitCode.DONE
    seen = status(request)
    if output.as_json:
        emit(_document(seen))
    elif seen.flows:
        _print(seen, depth, None)
    else:
        click.echo(f"{seen.topology} declares no flow: there is nothing to replicate.")
    return ExitCode.DONE if all(flow.destination_answers for flow in seen.flows) else ExitCode.ERROR


class FlowHistories:
    """Keeps the last rates and lags of each flow."""

    def __init__(self) -> None:
        self._rates: dict[str, deque[float | None]] = {}
        self._lags: dict[str, deque[float | None]] = {}

    def take(self, status: "ReplicationStatus") -> "Mapping[str, FlowHistory]":
        from planner.render.status import FlowHistory

        for flow in status.flows:
            self._rates.setdefault(flow.name, deque(maxlen=_REMEMBERED)).append(flow.records_per_s)
            self._lags.setdefault(flow.name, deque(maxlen=_REMEMBERED)).append(flow.lag_records)
        return {
            name: FlowHistory(tuple(rates), tuple(self._lags[name])) for name, rates in self._rates.items()
        }


async def _watch(
    request: ReplicationStatusRequest, every_ms: int, depth: "DetailLevel", *, as_json: bool
) -> None:
    """Shows the status until it is interrupted. As JSON, one document a line."""
    from rich.live import Live

    from planner.cli.console import console, terminal_width
    from planner.workflows.audit.replication_status import watch_status

    histories = FlowHistories()
    on_screen = sys.stdout.isatty() and not as_json
    live = Live(console=console(terminal_width()), auto_refresh=False) if on_screen else None
    try:
        if live is not None:
            live.start()
        async for status in watch_status(request, every_ms, every_offset=as_json):
            _show(status, depth, histories.take(status), live, as_json=as_json)
    finally:
        if live is not None:
            live.stop()


def _show(
    status: "ReplicationStatus",
    depth: "DetailLevel",
    histories: "Mapping[str, FlowHistory]",
    live: "Live | None",
    *,
    as_json: bool,
) -> None:
    if as_json:
        emit_event(_document(status))
    elif live is not None:
        from rich.console import Group

        from planner.cli.console import on_one_line, terminal_width
        from planner.render.status import screen

        lines = map(on_one_line, screen(status, terminal_width(), depth, histories))
        live.update(Group(*lines), refresh=True)
    else:
        _print(status, depth, histories)
        click.echo()


def _document(status: "ReplicationStatus") -> dict[str, Any]:
    from planner.render.status import document
    from runtime.contract.results.failover import verdicts

    return document(status, verdicts(status))


def _print(
    status: "ReplicationStatus", depth: "DetailLevel", histories: "Mapping[str, FlowHistory] | None"
) -> None:
    from planner.cli.console import print_lines
    from planner.render.status import screen

    print_lines(lambda width: screen(status, width, depth, histories))

"""`repl status`: how replication stands, read from the clusters; with --watch, again and again."""

import sys
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import click
from msgspec.structs import replace

from planner.cli.command import Output, command
from planner.cli.output import emit_event, unwritten
from planner.model.diagnostic import ExitCode
from planner.workflows.options import DURATION, Option
from planner.workflows.requests import ReplicationStatusRequest

if TYPE_CHECKING:
    from planner.render.status import DetailLevel
    from runtime.contract.results.status import ReplicationStatus


@command
def status(
    request: ReplicationStatusRequest,
    output: Output,
    watch: Annotated[
        bool, Option("--watch", "Read again and again until Ctrl-C, with what came before.")
    ] = False,
    every: Annotated[
        int, Option("--every", "How often --watch reads.", "DURATION", kind=DURATION, least=100)
    ] = 2_000,
    topics: Annotated[bool, Option("--topics", "A line for each topic, too.")] = False,
    every_partition: Annotated[bool, Option("--all", "A line for each partition, too.")] = False,
) -> int:
    """Show jobs, flows, lag, rates and latency, and which partitions wait for a decision.

    All of it is read from the clusters: right also when a job is dead, or when one datacenter is down.
    Exit code: 0 done, 1 where a destination could not be read (the rest is shown).
    """
    from planner.render.status import DetailLevel, screen
    from planner.workflows.audit.replication_status import status

    request = replace(request, every_offset=output.as_json)
    depth = DetailLevel.PARTITIONS if every_partition else DetailLevel.TOPICS if topics else DetailLevel.FLOWS
    if watch:
        import asyncio

        asyncio.run(_watch(request, every, depth, as_json=output.as_json))
        return ExitCode.DONE
    seen = status(request)
    if seen.flows or output.as_json:
        output.show(lambda: _document(seen), lambda width: screen(seen, width, depth))
    else:
        click.echo(f"{seen.topology} declares no flow: there is nothing to replicate.")
    return ExitCode.DONE if all(flow.destination_answers for flow in seen.flows) else ExitCode.ERROR


async def _watch(
    request: ReplicationStatusRequest, every_ms: int, depth: "DetailLevel", *, as_json: bool
) -> None:
    """Shows the status until it is interrupted. As JSON, one document a line."""
    from rich.console import Group
    from rich.live import Live

    from planner.cli.console import console, on_one_line, print_lines, terminal_width
    from planner.render.status import FlowHistory, screen
    from planner.workflows.audit.replication_status import watch_status

    histories: dict[str, FlowHistory] = {}
    on_screen = sys.stdout.isatty() and not as_json
    live = Live(console=console(terminal_width()), auto_refresh=False) if on_screen else None
    with live or nullcontext():
        async for status in watch_status(request, every_ms, every_offset=as_json):
            for flow in status.flows:
                histories.setdefault(flow.name, FlowHistory()).put(flow)
            if as_json:
                emit_event(_document(status))
            elif live is not None:
                lines = screen(status, terminal_width(), depth, histories)
                live.update(Group(*map(on_one_line, lines)), refresh=True)
            else:
                print_lines(partial(screen, status, depth=depth, trails=histories))
                click.echo()
            if unwritten() is not None:
                return


def _document(status: "ReplicationStatus") -> dict[str, Any]:
    from planner.render.status import document
    from runtime.contract.results.failover import verdicts

    return document(status, verdicts(status))

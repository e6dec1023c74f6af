"""The commands that operate flows and jobs that run."""

from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import click

from planner.cli.command import FORMAT_VERSION, ApprovedOutput, Output, command
from planner.cli.output import emit_event
from planner.model.diagnostic import ExitCode
from planner.workflows.options import DURATION, Option
from planner.workflows.requests import (
    FlowRequest,
    HistoryRequest,
    ResumeRequest,
    StandbyRequest,
    TopologyRequest,
)


@command
def pause(request: FlowRequest, output: ApprovedOutput) -> int:
    """Stop copying FLOW until repl resume: writes state: paused into the topology, plans and applies.

    Nothing else in the file changes. The job continues with its other flows.
    """
    from planner.workflows.flows.states import pause

    return pause(request, output.interaction()).exit_code


@command
def resume(request: ResumeRequest, output: ApprovedOutput) -> int:
    """Resume FLOW at the offsets where it stopped: writes state: active into the topology, plans and applies.

    With --accept-loss, partitions that stopped because records were lost continue behind the loss. It
    holds for the partitions that are stopped now, and for no later loss. Partitions that stopped for
    another reason are named with their next step and left as they are.
    """
    from planner.workflows.flows.states import resume

    return resume(request, output.interaction()).exit_code


@command
def history(request: HistoryRequest, output: Output) -> int:
    """Show who applied what, when, and how it ended.

    Each cluster remembers the applies that wrote to it; a cluster that does not answer is left out and named.
    """
    from planner.render.reports import history as rendered
    from planner.workflows.audit.history import history

    applies = history(request, output.progress()).applies
    if request.apply_id is not None and not output.as_json:
        click.echo(rendered.one_text(applies[0]))
    else:
        output.show(
            lambda: rendered.document(applies, with_steps=request.apply_id is not None),
            lambda width: rendered.screen(applies, width),
        )
    return ExitCode.DONE


@partial(command, without=("timeout_ms",))
def standby(request: StandbyRequest, output: Output) -> int:
    """Watch JOB from this machine, and start it here when its own machine is lost.

    Runs until SIGTERM or Ctrl-C, best as a service on one or more other machines. The topology declares their
    number: jobs: {JOB: {standby: 1}}. A job without a heartbeat for 4 to 10 s is taken over, by one standby.
    A job that repl stopped is not. The old driver ends when its machine is back. A job that was started here
    goes on when this command ends. With --json each line is an event.
    """
    from planner.render import readable
    from planner.workflows.standby import standby

    def say(text: str) -> None:
        now = datetime.now().astimezone()
        if output.as_json:
            at = now.isoformat(timespec="seconds")
            emit_event({"version": 1, "event": "standby", "job": request.job, "at": at, "message": text})
        else:
            click.echo(f"{now:%H:%M:%S} {readable.lines(text)}")

    standby(request, say)
    return ExitCode.DONE


@command
def ui(
    request: TopologyRequest,
    output: Output,
    port: Annotated[
        int, Option("--port", "The port to listen on; 0 takes a free one.", least=0, most=65_535)
    ] = 8080,
    address: Annotated[
        str,
        Option(
            "--address",
            "The address to listen on. Any but loopback needs --token-file, and TLS in front.",
        ),
    ] = "127.0.0.1",
    token_file: Annotated[
        Path | None, Option("--token-file", "A file with the token that viewers must have.", "FILE")
    ] = None,
    hosts: Annotated[
        tuple[str, ...],
        Option(
            "--allow-host",
            "A name that browsers reach the server by, such as that of a proxy in front; repeatable.",
            "NAME",
        ),
    ] = (),
    reports: Annotated[
        Path | None,
        Option(
            "--reports",
            "Where reports of drills are stored.  [default: .repl/drills beside the topology]",
            "DIR",
            path="folder",
        ),
    ] = None,
    every: Annotated[
        int, Option("--every", "How often the clusters are read.", "DURATION", kind=DURATION, least=100)
    ] = 2_000,
) -> int:
    """Serve live pages: whether it is safe to fail over, and why not; flows, jobs, groups, plan, history.

    They are read-only, and read the clusters as status, plan, history and offsets do. Ctrl-C ends it.
    Exit code: 1 where the topology has errors, the port is taken or a token is missing, 130 interrupted.
    """
    from planner.ui.server import access_policy, listen, serve, site_of, url_of

    policy = access_policy(address, token_file, hosts)
    site = site_of(request, policy, every, lambda text: click.echo(text, err=True), reports)
    listening = listen(port, address)
    url = url_of(listening)
    if output.as_json:
        emit_event({"format_version": FORMAT_VERSION, "url": url, "token": policy.token is not None})
    else:
        click.echo(f"{url} shows {request.path}. Ctrl-C ends it.")
    if policy.token is not None:
        click.echo("The token and the pages travel in clear text: put TLS in front of this server.", err=True)
    serve(site, listening)
    return ExitCode.DONE

"""`repl standby`: take a job over when its machine is lost."""

from datetime import datetime
from pathlib import Path

import click

from planner.cli.options import topology_path, var_file_option
from planner.model.diagnostic import ExitCode


@click.command()
@click.argument("job")
@topology_path
@var_file_option
def command(job: str, path: Path, var_files: tuple[Path, ...]) -> int:
    """Watch JOB from this machine, and start it here when its own machine is lost.

    Runs until SIGTERM or Ctrl-C, best as a service on one or more other machines. The topology declares their
    number: jobs: {JOB: {standby: 1}}. A job without a heartbeat for 12 s is taken over, by one standby. A job
    that repl stopped is not. The old driver ends when its machine is back. A job that was started here goes
    on when this command ends.
    """
    from planner.render import readable
    from planner.workflows.standby import StandbyRequest, standby

    def say(text: str) -> None:
        click.echo(f"{datetime.now().astimezone():%H:%M:%S} {readable.lines(text)}")

    standby(StandbyRequest(path, var_files, job=job), say)
    return ExitCode.DONE

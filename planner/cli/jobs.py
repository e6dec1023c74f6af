"""`repl jobs`: what a cluster needs before it runs the jobs of a topology."""

from functools import partial

import click

from planner.cli.command import Output, command
from planner.workflows.requests import TopologyRequest


@click.group()
def jobs() -> None:
    """Show what a Kubernetes cluster needs for the jobs of a topology."""


@partial(command, without=("timeout_ms",))
def manifest(request: TopologyRequest, output: Output) -> int:
    """Print service accounts and rights for Kubernetes, as YAML for kubectl apply.

    For each namespace and service account of the topology's jobs with launcher: kubernetes: the account and
    the rights of drivers, and a role with the rights of repl apply. Nothing is read but the topology. With
    --json they are one List, which kubectl applies too.
    """
    from planner.workflows.manifests import as_yaml, rights_resources

    resources = rights_resources(request)
    if output.as_json:
        output.emit({"apiVersion": "v1", "kind": "List", "items": resources})
    else:
        click.echo(as_yaml(resources), nl=False)
    return 0


jobs.add_command(manifest)

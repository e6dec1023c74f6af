"""`repl schema`: the JSON Schema of the topology, for editors."""

import click

from planner.cli.output import emit


@click.command()
@click.option("--markdown", is_flag=True, hidden=True, help="The reference for people, as docs/topology.md.")
@click.option("--json", is_flag=True, expose_value=False, help="No effect: the output is always JSON.")
def command(markdown: bool) -> None:
    """Print the JSON Schema (draft 2020-12) of the topology's language.

    An editor completes and checks topologies with it: repl schema > topology.schema.json
    """
    from planner.config.schema import json_schema, reference

    if markdown:
        click.echo(reference(), nl=False)
    else:
        emit(json_schema())

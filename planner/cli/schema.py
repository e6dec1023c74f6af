"""`repl schema`: the JSON Schema of the topology, for editors."""

from pathlib import Path

import click

from planner.cli.output import emit


@click.command()
@click.option(
    "--markdown",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    hidden=True,
    help="Write the reference for people into a folder: docs/topology*.md.",
)
@click.option("--json", is_flag=True, expose_value=False, help="No effect: the output is always JSON.")
def command(markdown: Path | None) -> None:
    """Print the JSON Schema (draft 2020-12) of the topology's language.

    An editor completes and checks topologies with it: repl schema > topology.schema.json
    """
    from planner.config.schema import json_schema, reference

    if markdown:
        for name, page in reference().items():
            (markdown / name).write_text(page, encoding="utf-8")
    else:
        emit(json_schema())

"""`repl completion`: completion of commands and options in a shell."""

import click
from click.shell_completion import get_completion_class

from planner.cli.app import root

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print the completion script of a SHELL, to be loaded at its start.

    \b
    bash:  repl completion bash > ~/.local/share/bash-completion/completions/repl
    zsh:   repl completion zsh > "${fpath[1]}/_repl"
    fish:  repl completion fish > ~/.config/fish/completions/repl.fish
    """
    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(root, {}, "repl", "_REPL_COMPLETE").source())

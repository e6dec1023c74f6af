"""The help of a command loads what parses the command line, and nothing of what the command does."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parents[3]
# What the root command needs, so every command has it. A command's own module adds its options alone.
PARSING = {
    "planner",
    "planner.cli",
    "planner.model",
    "planner.model.diagnostic",
    "planner.render",
    "planner.render.readable",
}
PROGRAM = """
import sys
from click.testing import CliRunner
from planner.cli.app import COMMANDS, root

for name in COMMANDS:
    before = set(sys.modules)
    assert CliRunner().invoke(root, [name, "--help"]).exit_code == 0, name
    print(name, *set(sys.modules) - before)
print("all", *sys.modules)
"""


def test_help_loads_no_more_than_the_command_line() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=HERE, capture_output=True, text=True, check=True, timeout=60
    )
    *lines, everything = (line.split() for line in done.stdout.splitlines())

    ours = {one for one in everything[1:] if one.split(".")[0] in ("planner", "runtime")}
    assert not {one for one in ours - PARSING if not one.startswith("planner.cli.")}
    assert not {"asyncio", "confluent_kafka", "deepdiff", "jinja2", "msgspec", "rich", "yaml"} & {*everything}
    assert {name: added for name, *added in lines if len(added) > 8} == {}

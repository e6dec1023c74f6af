"""Commands that end a flow or let it rest, where nothing comes of it: the file stays as it was."""

from pathlib import Path

import pytest

from planner.model.diagnostic import ExitCode
from tests.planner.cli.shop import refused, shop

FLOWS = """\
  - {name: there, from: dc1, to: dc2, topics: {include: orders}}   # the way there
  - {name: gone, from: dc1, to: dc2, topics: {include: old}, state: failed_over}
"""


@pytest.mark.parametrize(
    ("command", "flow", "code", "said"),
    [
        ("pause", "ther", ExitCode.ERROR, "there is no flow ther in this topology — did you mean there?"),
        ("pause", "x", ExitCode.ERROR, "there is no flow x in this topology — its flows: gone, there"),
        ("failover", "y", ExitCode.ERROR, "there is no cluster y in this topology — its clusters: dc1, dc2"),
        ("pause", "gone", ExitCode.REFUSED, "flow.gone is failed_over and can't be paused"),
        ("resume", "gone", ExitCode.REFUSED, "flow.gone is failed_over and can't be resumed"),
        ("pause", "there", ExitCode.ERROR, "nothing listens there"),
        ("resume", "there", ExitCode.ERROR, "nothing listens there"),
    ],
)
def test_nothing_came_of_it(
    tmp_path: Path,
    command: str,
    flow: str,
    code: ExitCode,
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    refused(shop(tmp_path, FLOWS), code, said, capsys, command, flow, "--timeout", "1s")

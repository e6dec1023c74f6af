"""`repl salvage --replay` where it is refused, before any cluster is asked."""

from pathlib import Path

import pytest

from planner.model.diagnostic import ExitCode
from tests.planner.cli.shop import refused, shop

FLOWS = """\
  - {name: there, from: dc1, to: dc2, topics: {include: orders}}
  - {name: still, from: dc1, to: dc2, topics: {include: payments}, state: paused}
  - {name: gone, from: dc1, to: dc2, topics: {include: old}, state: failed_over}
"""


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("there", "--replay"), ExitCode.REFUSED, "flow.there is active: it copies what is left"),
        (("still", "--replay"), ExitCode.REFUSED, "flow.still is paused: it copies what is left"),
        (("gone", "--replay"), ExitCode.ERROR, "nothing listens there — look at the cluster's bootstrap"),
        (("gone", "--to", "aside"), ExitCode.ERROR, "--to goes with --replay"),
        (("gone", "--replay", "--export", "x"), ExitCode.ERROR, "--export and --replay are two commands"),
    ],
)
def test_refused(
    tmp_path: Path, arguments: tuple[str, ...], code: ExitCode, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(shop(tmp_path, FLOWS), code, said, capsys, "salvage", *arguments, "--timeout", "1s")

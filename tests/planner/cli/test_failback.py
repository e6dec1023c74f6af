"""`repl failback` where nothing comes of it: the file stays as it was, and the way out is told."""

from pathlib import Path

import pytest

from planner.config import load
from planner.graph.routes import pending_failbacks
from planner.model.diagnostic import ExitCode
from planner.workflows.flows.failover import with_failback_flows
from tests.planner.cli.shop import HEAD, refused, shop

ACTIVE = "  - {name: there, from: dc1, to: dc2, topics: {include: orders}}   # the way there\n"
GONE = "  - {name: gone, from: dc1, to: dc2, topics: {include: old}, state: failed_over}\n"
HOME = "  - {name: home, from: dc2, to: dc1, topics: {include: .*}, reverse_of: gone, state: failed_over}\n"
TAKEN = "  - {name: gone-back, from: dc2, to: dc1, topics: {include: z}}\n"


@pytest.mark.parametrize(
    ("flows", "arguments", "code", "said"),
    [
        (ACTIVE, ["dc3"], ExitCode.ERROR, "there is no cluster dc3 in this topology — did you mean dc"),
        (ACTIVE, ["dc1"], ExitCode.REFUSED, "no flow out of dc1 was promoted or failed over"),
        (ACTIVE, ["dc1", "--switch"], ExitCode.REFUSED, "no flow out of dc1 was promoted or failed over"),
        (ACTIVE, ["dc2"], ExitCode.ERROR, "no flow out of dc2 was promoted or failed over"),
        (GONE, ["dc1", "--switch"], ExitCode.REFUSED, "nothing of flow.gone was copied back yet"),
        (GONE + HOME, ["dc1", "--switch"], ExitCode.REFUSED, "once dc2 is back: repl failback dc2"),
        (GONE, ["dc1"], ExitCode.ERROR, "nothing can be copied back to dc1 yet"),
    ],
)
def test_nothing_came_of_it(
    tmp_path: Path,
    flows: str,
    arguments: list[str],
    code: ExitCode,
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    refused(shop(tmp_path, flows), code, said, capsys, "failback", *arguments)


def test_its_name_is_another_flows(tmp_path: Path) -> None:
    topology = load(shop(tmp_path, GONE + TAKEN), ())

    with pytest.raises(Exception, match="would be gone-back, and another flow has that name"):
        with_failback_flows(topology, pending_failbacks(topology, "dc1"))


def test_the_way_home_of_a_second_failback_is_the_one_that_is_there(tmp_path: Path) -> None:
    file = shop(tmp_path, GONE + HOME.replace("failed_over", "promoted"))
    topology = load(file, ())

    after = with_failback_flows(topology, pending_failbacks(topology, "dc1"))

    assert after == {file: HEAD + GONE + HOME.replace("failed_over", "active")}

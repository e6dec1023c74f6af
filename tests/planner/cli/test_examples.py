"""plans/examples on real clusters: each is planned and applied, and then there is nothing left to do."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from planner.cli.app import run
from runtime.lab.lab import Lab
from tests.labs import spec

pytestmark = pytest.mark.integration

EXAMPLES = sorted(Path("plans/examples").glob("*.yaml"))
PORTS = {"127.0.0.1:19092": "dc1", "127.0.0.1:29092": "dc2", "127.0.0.1:39092": "dc3"}


@pytest.fixture
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Three clusters for one example after the other; each is destroyed before the next."""
    made = Lab(tmp_path_factory.mktemp("examples"))
    made.up([spec(name) for name in ("dc1", "dc2", "dc3")])
    yield made
    made.down(purge=True)


def of_the_lab(example: Path, lab: Lab, folder: Path) -> str:
    text = example.read_text()
    for address, name in PORTS.items():
        text = text.replace(address, lab.clusters[name].bootstrap)
    file = folder / example.name
    file.write_text(text)
    return str(file)


def test_each_is_planned_and_comes_to_rest(
    three: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert EXAMPLES
    for example in EXAMPLES:
        file = of_the_lab(example, three, tmp_path)

        assert run(["plan", "--detailed-exitcode", file]) == 2, capsys.readouterr()
        assert run(["apply", "--auto-approve", file]) == 0, capsys.readouterr()
        capsys.readouterr()
        assert run(["plan", "--detailed-exitcode", file]) == 0, capsys.readouterr()
        assert "No changes." in capsys.readouterr().out
        assert run(["drift", file]) == 0, capsys.readouterr()
        assert run(["destroy", "--auto-approve", file]) == 0, capsys.readouterr()

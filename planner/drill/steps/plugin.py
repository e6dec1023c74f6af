"""The pytest plugin: with `--repl-topology PATH`, pytest runs `.feature` files on a copy of the topology.

Every pytest of this machine loads it. Without the option it does nothing, and imports nothing of the planner.
"""

import time
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("repl", "drills of repl")
    group.addoption(
        "--repl-topology",
        type=Path,
        metavar="PATH",
        help="Run .feature files against a copy of this topology on clusters of this machine.",
    )
    group.addoption("--repl-var-file", type=Path, action="append", default=[], metavar="FILE")


def pytest_configure(config: pytest.Config) -> None:
    path: Path | None = config.getoption("repl_topology")
    if path is None:
        return
    from planner.model.diagnostic import Failure
    from planner.render.readable import one_line
    from planner.workflows.requests import DrillRequest
    from planner.workflows.topology import load_topology
    from runtime.contract.extras import Extra, is_missing, missing_extra

    if is_missing(Extra.DRILL):
        raise pytest.UsageError("; ".join(missing_extra(Extra.DRILL, "--repl-topology")))
    from planner.drill.features import FeatureDrill

    def progress(text: str) -> None:
        """Writes to pytest's own terminal, which captures nothing of it."""
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.ensure_newline()
            reporter.write_line(f"{time.strftime('%H:%M:%S')} {one_line(text)}")

    request = DrillRequest(path, tuple(config.getoption("repl_var_file")))
    try:
        topology = load_topology(request)
    except Failure as failure:
        raise pytest.UsageError("\n".join(map(str, failure.diagnostics))) from None
    config.pluginmanager.register(FeatureDrill(request, topology, progress), "repl-drill-hooks")


@pytest.fixture
def drill() -> None:
    """The scenario under way, where features are run on the copy of a topology."""
    pytest.fail("name the topology: pytest --repl-topology PATH", pytrace=False)

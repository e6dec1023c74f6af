"""A drill of feature files: pytest runs them in this process, with our plugin and no other."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from planner.config import load
from planner.drill.rehearsal import DrillLimits, DrillRequest, drill_report, limits_of, now
from planner.drill.scenario_record import Progress
from planner.model.diagnostic import Failure, error
from planner.model.drill import DrillReport

if TYPE_CHECKING:
    import pytest

    from planner.drill.steps.plugin import FeatureDrill

_AUTOLOAD = "PYTEST_DISABLE_PLUGIN_AUTOLOAD"
_OPTIONS = "PYTEST_ADDOPTS"


def rehearse_features(request: DrillRequest, features: Path, progress: Progress) -> DrillReport:
    """Runs the scenarios of a folder or a file, each on clusters of its own.

    Limits of the request hold for each scenario that measures them, limits of the topology do not. A
    `conftest.py` there may define steps of the team's own. Failure: a sentence is no step, a file can't be
    read, or there is no scenario.
    """
    topology = load(request.path, request.var_files)
    started = now()
    shared = _run(request, features, limits_of(request), progress)
    if shared.problems:
        hint = "repl drill --steps shows all steps"
        raise Failure([error(problem, hint) for problem in shared.problems])
    if not shared.results:
        raise Failure(error(f"{features}: there is no scenario", "write one into a file NAME.feature"))
    results = tuple(shared.results)
    return drill_report(topology, started, shared.notes, results, features=features.resolve().name)


def steps() -> dict[str, list[tuple[str, str]]]:
    """Returns all steps with what they do, below the headings of their two groups."""
    from planner.drill import promises
    from planner.drill.steps.language import table

    assert promises, "its import registers the steps"
    return table()


def _run(request: DrillRequest, features: Path, limits: DrillLimits, progress: Progress) -> "FeatureDrill":
    import pytest

    from planner.drill.steps import plugin

    shared: list[FeatureDrill] = []

    class Announcing:
        """Takes the shared state of the plugin, and gives it the progress and the limits."""

        @pytest.hookimpl(trylast=True)
        def pytest_configure(self, config: "pytest.Config") -> None:
            shared.append(config.stash[plugin.DRILL])
            shared[0].progress, shared[0].limits = progress, limits

    root = features if features.is_dir() else features.parent
    options = ["--config-file", os.devnull, "--rootdir", str(root), "--capture=no", "--import-mode=importlib"]
    for name in ("pytest_bdd.plugin", plugin.__name__, "no:terminal", "no:cacheprovider"):
        options += ["-p", name]
    options += ["--repl-topology", str(request.path)]
    for file in request.var_files:
        options += ["--repl-var-file", str(file)]
    with _without_other_tests():
        code = pytest.main([*options, str(features)], plugins=[Announcing()])
    if code == pytest.ExitCode.INTERRUPTED and not (shared and shared[0].problems):
        raise KeyboardInterrupt
    if not shared:
        raise Failure(error("pytest could not be started", "look at the messages above"))
    return shared[0]


@contextmanager
def _without_other_tests() -> Iterator[None]:
    """Hides the plugins and the options that are meant for other tests."""
    before = {name: os.environ.pop(name, None) for name in (_AUTOLOAD, _OPTIONS)}
    os.environ[_AUTOLOAD] = "1"
    try:
        yield
    finally:
        del os.environ[_AUTOLOAD]
        os.environ.update({name: value for name, value in before.items() if value is not None})

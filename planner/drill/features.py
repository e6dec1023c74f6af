"""A drill of feature files: pytest runs them in this process, with our plugin and no other."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from planner.config import load
from planner.drill.rehearsal import DrillRequest, drill_report, now
from planner.drill.replica import Progress
from planner.drill.standard import DrillLimits
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
    limits = DrillLimits(None if request.max_rto_ms is None else request.max_rto_ms / 1000, request.max_rpo)
    shared = _run(request, features, limits, progress)
    if shared.problems:
        raise Failure([error(one, "repl drill --steps shows all steps") for one in shared.problems])
    if not shared.results:
        raise Failure(error(f"{features}: there is no scenario", "write one into a file NAME.feature"))
    return drill_report(topology, started, shared.notes, tuple(shared.results))


def steps_markdown() -> str:
    """Returns the table of all steps."""
    from planner.drill.steps import language, sentences

    assert sentences, "its import registers the steps"
    return language.markdown()


def _run(request: DrillRequest, features: Path, limits: DrillLimits, progress: Progress) -> "FeatureDrill":
    import pytest

    from planner.drill.steps import plugin

    found: list[FeatureDrill] = []

    class Announcing:
        """Takes the shared state of the plugin, and tells it where progress goes, and the limits."""

        @pytest.hookimpl(trylast=True)
        def pytest_configure(self, config: "pytest.Config") -> None:
            found.append(config.stash[plugin.DRILL])
            found[0].progress, found[0].limits = progress, limits

    files = [word for file in request.var_files for word in ("--repl-var-file", str(file))]
    options = [
        "--config-file",
        os.devnull,
        "--rootdir",
        str(features if features.is_dir() else features.parent),
    ]
    options += [
        "-p",
        "pytest_bdd.plugin",
        "-p",
        plugin.__name__,
        "-p",
        "no:terminal",
        "-p",
        "no:cacheprovider",
    ]
    options += ["--capture=no", "--import-mode=importlib", "--repl-topology", str(request.path), *files]
    with _without_other_tests():
        code = pytest.main([*options, str(features)], plugins=[Announcing()])
    if code == pytest.ExitCode.INTERRUPTED and not (found and found[0].problems):
        raise KeyboardInterrupt
    if not found:
        raise Failure(error("pytest could not be started", "look at the messages above"))
    return found[0]


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

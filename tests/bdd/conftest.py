"""The steps of `repl drill` and of towns. A module's own step of the same words comes before them."""

import pytest
from pytest_bdd.parser import Step

from planner.drill.scenario_run import ScenarioRun
from planner.drill.steps import sentences
from tests.bdd import steps
from tests.bdd.running import Town, TownDrill


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(sentences, "steps-of-drills")
    config.pluginmanager.register(steps, "steps-of-towns")


@pytest.fixture
def drill(town: Town) -> TownDrill:
    return TownDrill(town)


def pytest_bdd_before_step(request: pytest.FixtureRequest, step: Step) -> None:
    """As in `repl drill`: a command that fails ends the scenario, unless the next step looks at it."""
    run = request.node.funcargs.get("drill")
    if isinstance(run, ScenarioRun):
        run.before_sentence(step.name)

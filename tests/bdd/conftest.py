"""The steps of `repl drill`. A module's own step of the same words comes before them."""

import pytest
from pytest_bdd.parser import Step
from pytest_bdd.scenario import scenario_wrapper_template_registry

from planner.drill.scenario_run import ScenarioRun
from planner.drill.steps import sentences
from tests.bdd.running import Town, TownDrill


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(sentences, "steps-of-drills")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Runs the chapters of on_call in their order, also where tests are shuffled: they are one night."""

    def line(item: pytest.Item) -> int:
        assert isinstance(item, pytest.Function)
        return scenario_wrapper_template_registry[item.function].line_number

    chapters = [item for item in items if item.path.name == "test_on_call.py"]
    in_order = iter(sorted(chapters, key=line))
    items[:] = [next(in_order) if item in chapters else item for item in items]


@pytest.fixture
def drill(town: Town) -> TownDrill:
    return TownDrill(town)


def pytest_bdd_before_step(request: pytest.FixtureRequest, step: Step) -> None:
    """As in `repl drill`: a command that fails ends the scenario, unless the next step looks at it."""
    run = request.node.funcargs.get("drill")
    if isinstance(run, ScenarioRun):
        run.before_sentence(step.name)

"""The steps of `repl drill` for stories of a town, and those that stories share beside them.

A module's own step of the same words comes before these.
"""

import pytest
from pytest_bdd import given, then

from planner.drill.steps import sentences
from tests.bdd.running import Town, TownDrill, eventually
from tests.processes import lives


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(sentences, "steps-of-drills")


@pytest.fixture
def drill(town: Town) -> TownDrill:
    return TownDrill(town)


@given("orders are copied from dc1 to dc2")
def _(town: Town) -> None:
    town.apply()


@then("no job is running")
def _(town: Town) -> None:
    eventually(lambda: not any(map(lives, town.processes("dc2").values())), about="no job is running")

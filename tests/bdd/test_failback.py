"""The feature failing_over/failback, with the steps of `repl drill`: dc1 is lost twice, and comes back."""

from collections.abc import Iterator

import pytest
from pytest_bdd import parsers, scenarios, then

from planner.drill.scenario_run import ScenarioRun
from tests.bdd.running import one_flow, rehearsed

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.usefixtures("drill")]

scenarios("failing_over/failback.feature")


@pytest.fixture
def drill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScenarioRun]:
    topics = {"include": ["orders", "payments", "invoices"]}
    with rehearsed(
        one_flow(topics=topics, rename="{source}.{topic}"), tmp_path_factory.mktemp("shop")
    ) as run:
        yield run


@then(parsers.parse("dc1.orders at dc2 holds {count:d} records, in the order of dc1"))
def _(drill: ScenarioRun, count: int) -> None:
    """dc1 also holds records that never left it: those of the forgotten producer."""
    here, there = drill.partitions("dc1", "orders"), drill.partitions("dc2", "dc1.orders")
    copied = {one.id for some in there.values() for one in some}
    assert {number: [one.id for one in some if one.id in copied] for number, some in here.items()} == {
        number: [one.id for one in some] for number, some in there.items()
    }
    assert len(copied) == sum(map(len, there.values())) == count

"""What is asked of which cluster, and how long each may keep silent."""

import asyncio

from planner.model.diagnostic import ExitCode, Failure, error
from planner.model.topology import Cluster
from planner.plan.fingerprint import stale_diagnostic
from planner.workflows.applying.apply import to_run_again
from planner.workflows.audit.access import cluster_access, completed
from planner.workflows.audit.replication_status import status_request
from tests.fakes.states import flow, topology

PINNED = Cluster("dc1", "dc1:9092", id="AAA"), Cluster("dc2", "dc2:9092")
SHOP = topology(flow(), clusters=PINNED)


def test_only_who_is_given_up_is_waited_for_less() -> None:
    clusters = status_request(SHOP, given_up="dc1").clusters
    assert {name: one.within(60.0) for name, one in clusters.items()} == {"dc1": 3.0, "dc2": 60.0}
    assert {name: one.within(1.0) for name, one in clusters.items()} == {"dc1": 1.0, "dc2": 1.0}
    assert {one.within(60.0) for one in status_request(SHOP).clusters.values()} == {60.0}


def test_the_pin_goes_with_the_address() -> None:
    assert {name: one.id for name, one in cluster_access(PINNED).items()} == {"dc1": "AAA", "dc2": None}


def test_a_command_that_made_a_stale_plan_itself_is_to_run_again() -> None:
    stale = stale_diagnostic("topic.dc1.orders", "retention.ms is 5s now, not set when the plan was made")
    refused = error("a guard", "look", exit=ExitCode.REFUSED)

    told = to_run_again(Failure([stale, refused]))

    assert [one.way_out for one in told.diagnostics] == ["run it again: the plan is made anew", "look"]
    assert told.exit_code is ExitCode.REFUSED


class Large:
    """Counts how often it is made a text, which takes long for the status of a large cluster."""

    shown = 0

    def __repr__(self) -> str:
        Large.shown += 1
        return "large"


def test_the_answer_of_a_request_is_not_made_a_text():
    async def ask() -> Large:
        return Large()

    assert isinstance(completed(ask()), Large)
    assert Large.shown == 0
    asyncio.run(ask())
    assert Large.shown > 0, "asyncio.run does it no more: `completed` is not needed"

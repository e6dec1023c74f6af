"""Which right is named where a broker denies a request."""

import pytest

from planner.apply.denials import denial_in_log, lines_since, naming_right
from planner.model.address import topic_address
from planner.model.step import (
    DONE,
    AlterConfigs,
    CreateTopic,
    DeleteTopic,
    GrowPartitions,
    Reassign,
    Step,
    failed,
)
from tests.fakes.jobs import FakeJobs
from tests.runtime.launch.specs import spec_of

AT = topic_address("dc2", "orders")
REFUSED = "Topic authorization failed. (TOPIC_AUTHORIZATION_FAILED)"
LINE = '2026-11-22T18:57:16Z INFO driver_message message="waiting: \\"a\\" CLUSTER_AUTHORIZATION_FAILED (31)"'


@pytest.mark.parametrize(
    ("step", "right"),
    [
        (CreateTopic("1", AT, "dc2", "orders", 1, 1, {}), "CREATE on the topic orders"),
        (GrowPartitions("1", AT, "dc2", "orders", 1, 2), "ALTER on the topic orders"),
        (AlterConfigs("1", AT, "dc2", "orders"), "ALTER_CONFIGS on the topic orders"),
        (DeleteTopic("1", AT, "dc2", "orders", "id"), "DELETE on the topic orders"),
        (Reassign("1", AT, "dc2", "orders", ((1,),), ((2,),)), "ALTER on the cluster"),
    ],
)
def test_a_refused_step_names_the_right(step: Step, right: str) -> None:
    expected = f"{REFUSED} — grant {right} at dc2 to the principal of this apply"
    assert naming_right(step, failed(REFUSED)).why == expected


def test_other_results_stay_as_they_are() -> None:
    step = CreateTopic("1", AT, "dc2", "orders", 1, 1, {})
    for result in (DONE, failed("no broker answers")):
        assert naming_right(step, result) == result


def test_only_what_the_job_logged_since_its_start_counts() -> None:
    jobs = FakeJobs(mute=True, older=("before: TOPIC_AUTHORIZATION_FAILED",), log=("it starts",))
    lines = lines_since(jobs, "dc2")
    jobs.launch(spec_of("dc2"))
    assert lines() == ["it starts"]


@pytest.mark.parametrize(
    ("logged", "found"),
    [
        (["it starts"], ""),
        (
            ["a: TOPIC_AUTHORIZATION_FAILED", LINE, "more"],
            r"waiting: \"a\" CLUSTER_AUTHORIZATION_FAILED (31)",
        ),
        (["a: TOPIC_AUTHORIZATION_FAILED (29)"], "a: TOPIC_AUTHORIZATION_FAILED (29)"),
    ],
)
def test_the_message_of_the_log_is_told_without_what_stands_before_it(logged: list[str], found: str) -> None:
    assert denial_in_log(lambda: logged, every_s=0)() == found

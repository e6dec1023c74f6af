"""When a job is ready, and what it says when it is not."""

from runtime.metrics.snapshot import unready
from tests.runtime.metrics.given import MADE_AT, flow, partition, picture, report, running


def test_ready_when_every_partition_of_active_flows_has_a_running_slot():
    seen = picture(flow(), slots=[running()], reports=[report(partition())])
    assert unready(seen, MADE_AT) == []


def test_before_the_first_picture_the_job_is_starting():
    assert unready(None, MADE_AT) == ["the job is starting"]


def test_the_heartbeat_grows_old_even_if_the_driver_hangs():
    seen = picture(flow(), slots=[running()], reports=[report(partition())], trouble="no leader")
    assert unready(seen, MADE_AT + 9) == []
    assert unready(seen, MADE_AT + 20) == ["the last heartbeat is 20 s old: no leader"]


def test_no_heartbeat_yet():
    seen = picture(state="starting", heartbeat_age_s=float("inf"))
    assert unready(seen, MADE_AT) == ["no heartbeat yet", "the job is starting"]


def test_a_partition_without_a_running_slot():
    of_an_older_life = picture(flow(), slots=[running(attempts=2)], reports=[report(partition())])
    waiting = picture(flow(), slots=[running(state="waiting")], reports=[report(partition())])
    for seen in (of_an_older_life, waiting):
        assert unready(seen, MADE_AT) == ["flow f: 1 of 1 partitions have no running slot"]


def test_a_flow_that_is_not_taken_over_yet():
    assert unready(picture(flow(generation=0)), MADE_AT) == ["flow f is not taken over yet"]


def test_a_paused_flow_needs_nothing():
    assert unready(picture(flow(state="paused", generation=0)), MADE_AT) == []


def test_a_flow_that_matches_no_topic_is_ready():
    assert unready(picture(flow(partitions=0)), MADE_AT) == []

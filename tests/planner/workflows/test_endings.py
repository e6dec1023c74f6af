"""While a flow ends: what is left to copy, how long a source may be silent, and which loss is accepted."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from planner.kafka import run
from planner.model.diagnostic import Diagnostic, ExitCode, Failure
from planner.model.topology import Cluster
from planner.workflows.flows.ending import (
    SILENT_MS,
    CopyGoal,
    LeftToCopy,
    SourceSilence,
    left_to_copy,
    read_subscriptions,
)
from planner.workflows.flows.failover import report_end
from planner.workflows.flows.states import not_copying, report_loss
from planner.workflows.interaction import ApplyResult, FlowsEnded, Interaction, ProgressEvent
from runtime.audit.status.facts import TopicFacts
from runtime.audit.status.join import join
from runtime.contract.client.stores import Setting
from runtime.contract.records.job_status import PartitionState as S
from runtime.contract.records.job_status import PartitionState as State
from runtime.contract.records.job_status import PartitionStatus
from runtime.contract.results.groups import FlowLoss
from runtime.contract.results.status import ReplicationStatus
from tests.fakes.blank import blank
from tests.fakes.clock import jumping
from tests.fakes.health import flow_health, partition_health, status_of, topic_health
from tests.fakes.states import flow, topology
from tests.fakes.tables import cases
from tests.planner.render.scenes import nothing
from tests.runtime.audit.given import (
    TOPIC,
    asked,
    destination,
    job,
    ledger,
    look,
    progress,
    report,
    said,
    source,
)

LONG_S = SILENT_MS / 1000 + 1


def test_a_source_that_never_answered_is_silent_at_once_and_another_one_may_come_back() -> None:
    silence = SourceSilence()

    assert silence.lasts(answers=False, now_s=100)
    assert not silence.lasts(answers=True, now_s=100)
    assert not silence.lasts(answers=False, now_s=101)
    assert not silence.lasts(answers=True, now_s=102)
    assert not silence.lasts(answers=False, now_s=102 + LONG_S - 2)
    assert silence.lasts(answers=False, now_s=102 + LONG_S)


AT_5 = progress(5), job(), report(said(S.RECORD_TOO_LARGE, why="2 MB"))
MADE_AGAIN = destination(topics={TOPIC: TopicFacts(b"o" * 16, 1)})


@cases(
    "here there written left",
    {
        "all is copied": (source(), destination(), (progress(), job(), report(said(S.CAUGHT_UP))), ""),
        "the mirror was made again, and nothing is left to copy": (
            *(source(), MADE_AGAIN, (progress(), job(), report(said(S.CAUGHT_UP)))),
            "orders-0: recreated, orders at dc2 was deleted and made again. Next: repl resume one --accept-",
        ),
        "a record is too large": (
            *(source(end=9), destination(end=5), AT_5),
            "orders-0: record_too_large, 2 MB. Next: raise max.message.bytes",
        ),
        "one was too large, and no record is left": (source(end=5), destination(end=5), AT_5, ""),
    },
)
def test_a_partition_that_waits_for_a_decision_is_named(here, there, written, left) -> None:
    (flow,) = join(asked(), look(here, there, ledger(*written))).flows
    found = left_to_copy(flow.topics)
    assert found.startswith(left)
    assert bool(found) is bool(left)


def test_what_producers_add_while_a_failback_waits_is_not_waited_for() -> None:
    def left(goal: CopyGoal, position: int, end: int) -> str:
        written = ledger(progress(position), job(), report(said(S.COPYING)))
        (flow,) = join(asked(), look(source(end=end), destination(end=position), written)).flows
        assert (
            left_to_copy(flow.topics)
            == f"{end - position:,} records are left to copy (orders {end - position:,})"
        )
        return goal.left(flow.topics)

    goal = CopyGoal()
    assert left(goal, 40, 100) == "60 records are left to copy (orders 60)"
    assert left(goal, 90, 170) == "10 records are left to copy (orders 10)"
    assert left(goal, 100, 180) == ""
    assert left(CopyGoal(), 100, 180) == "80 records are left to copy (orders 80)"


# The other partitions of its topic have no lag: promote and the gate of a wave must not pass.
WITHOUT_LEADER = partition_health(lag_records=0), partition_health(partition=1, lag_records=None)


@cases(
    "topics unknown",
    {
        "no lag is known": (
            [replace(topic_health(topic=name), lag_records=None) for name in ("d", "a", "c", "b")],
            "a, b, c",
        ),
        "a partition has no leader": (
            [replace(topic_health(*WITHOUT_LEADER, topic="orders"), lag_records=0)],
            "orders",
        ),
    },
)
def test_a_failback_waits_while_a_lag_is_not_known(topics, unknown) -> None:
    assert CopyGoal().left(topics) == left_to_copy(topics) == f"the lag of {unknown} is not known yet"


def test_of_many_topics_those_with_the_largest_lags_are_named() -> None:
    lags = {"a": 1, "b": 0, "c": 3_000, "d": 20, "e": 7, "f": 2}
    topics = [topic_health(partition_health(lag_records=lag), topic=topic) for topic, lag in lags.items()]
    assert left_to_copy(topics) == ("3,030 records are left to copy (c 3,000, d 20, e 7, and 2 more topics)")


@pytest.mark.parametrize(
    ("lag", "records", "text"), [(0, 3, "3 records are left"), (None, None, "the lag of b")]
)
def test_programs_get_what_is_left_by_topic(lag: int | None, records: int | None, text: str) -> None:
    topics = [
        topic_health(partition_health(lag_records=3), topic="a"),
        topic_health(partition_health(lag_records=lag), topic="b"),
    ]
    left = LeftToCopy.of("there", topics)
    assert (left.flow, left.records, left.topics) == ("there", records, {"a": 3, "b": lag})
    assert left.text.startswith(text)


THERE = flow("there")


def partition(number: int, state: State, why: str = "") -> PartitionStatus:
    return PartitionStatus("there", "orders", number, state, since_ms=0, why=why)


LOST = partition(0, State.DATA_LOSS)


DIVERGED = partition(1, State.DIVERGED)
IDLE = partition_health(1, state="retrying", why="orders-1 has no leader", next="")
CONTINUES = "flow.there: continues behind the lost records: "
NOT_YET = "orders-1: its loss is accepted, and it is retrying: orders-1 has no leader"
NO_LOSS = "is no loss that can be accepted"


@cases(
    "stopped left told",
    {
        "both continue": ([LOST, DIVERGED], [], [f"{CONTINUES}orders-0 (data_loss), orders-1 (diverged)"]),
        "one does not copy yet": ([LOST, DIVERGED], [IDLE], [f"{CONTINUES}orders-0 (data_loss)", NOT_YET]),
        "none copies yet": ([DIVERGED], [IDLE], [NOT_YET]),
        "others lost no records": (
            [LOST, partition(1, State.RECORD_CORRUPT), partition(2, State.LEDGER_MISSING)],
            [],
            [
                f"{CONTINUES}orders-0 (data_loss)",
                f"orders-2: ledger_missing {NO_LOSS}",
                f"orders-1: record_corrupt {NO_LOSS}",
            ],
        ),
    },
)
def test_what_continues_and_what_does_not_is_told(stopped, left, told) -> None:
    events: list[ProgressEvent] = []
    report_loss(stopped, THERE, Interaction(progress=events.append), left)
    assert [event.summary if isinstance(event, Diagnostic) else event for event in events] == told


GO_PAST = "go past the record with restart_from: {offsets: {orders: {7: OFFSET}}}"


@pytest.mark.parametrize(
    ("state", "hint"),
    [
        (State.RECORD_TOO_LARGE, "raise max.message.bytes"),
        (State.RECORD_REFUSED, GO_PAST),
        (State.RECORD_CORRUPT, GO_PAST),
        (State.LEDGER_MISSING, "restore __repl.ledger, or say where to begin"),
        (State.SOURCE_DELETED, "take the topic out of the flow"),
        (None, "look at repl status"),
    ],
)
def test_what_is_no_loss_is_refused_with_its_way_out(state: State | None, hint: str) -> None:
    stopped = [partition(7, state, "so it is"), partition(8, state)] if state is not None else []
    with pytest.raises(Failure) as failure:
        report_loss(stopped, THERE, Interaction(), [])

    (refused,) = failure.value.diagnostics
    what = f"orders-7, orders-8: {state} {NO_LOSS} (orders-7: so it is)"
    nothing = "flow.there: none of its partitions is stopped over lost records"
    assert refused.summary == (what if state else nothing)
    assert failure.value.exit_code == (ExitCode.REFUSED if state else ExitCode.ERROR)
    assert hint in refused.hint


class Readings:
    """Stands for a StatusReader: each reading shows the next states of the partitions, the last for ever."""

    def __init__(self, *states: tuple[str, ...]) -> None:
        self._states = list(states)

    async def status(self) -> ReplicationStatus:
        states = self._states.pop(0) if len(self._states) > 1 else self._states[0]
        health = [partition_health(number, state=state) for number, state in enumerate(states)]
        return status_of(flow_health(topic_health(*health), name="there"))


@pytest.mark.parametrize(
    ("states", "left"),
    [
        ((("data_loss", "data_loss"), ("starting", "retrying"), ("copying", "retrying")), []),
        ((("data_loss", "data_loss"), ("retrying", "caught_up")), ["retrying"]),
        (((),), None),
    ],
)
def test_a_partition_whose_loss_is_accepted_is_waited_for(states: Any, left: list[str] | None) -> None:
    """Other partitions of the flow are not. What no status shows is not said to copy."""

    refused = pytest.raises(Failure, match="whether it copies again is not known")

    @jumping
    async def wait() -> None:
        reader: Any = Readings(*states)
        with refused if left is None else nullcontext():
            assert [part.state for part in await not_copying(reader, "there", [LOST])] == left

    wait()


def test_a_secret_that_is_gone_after_the_end_is_a_warning(tmp_path: Path) -> None:
    """The apply is done by then: a failover that was carried out must not end as a failed one."""
    secret: dict[str, Setting] = {"sasl.password": {"file": str(tmp_path / "gone")}}
    here = "127.0.0.1:1"
    clusters = [Cluster("dc1", bootstrap=here), Cluster("dc2", bootstrap=here, client=secret)]
    ended = flow()
    events: list[ProgressEvent] = []
    shop = topology(ended, clusters=clusters)
    assert run(read_subscriptions(shop, [ended], 1.0, events.append)) == ()
    (noticed,) = events
    assert isinstance(noticed, Diagnostic)
    assert "sasl.password" in str(noticed)


def test_the_loss_of_a_failover_is_reported_before_the_groups_are_read() -> None:
    ended = flow()
    shop = topology(ended, clusters=[Cluster(name, bootstrap="127.0.0.1:1") for name in ("dc1", "dc2")])
    lost = (blank(FlowLoss, flow=ended.name, records=7),)
    events: list[ProgressEvent] = []

    result = run(report_end(shop, [ended], ApplyResult(nothing()), lost, 1.0, events.append))

    assert result.lost == lost
    reported, unread = events
    assert reported == FlowsEnded(lost)
    assert isinstance(unread, Diagnostic)
    assert "no bootstrap broker answers" in str(unread)

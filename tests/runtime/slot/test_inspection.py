"""R4: what both sides show against what the ledger says, and how a partition goes on when someone says so."""

from collections.abc import Mapping
from typing import cast

import pytest
from msgspec.structs import replace

from runtime.contract.records.job_status import PartitionState as State
from runtime.contract.records.ledger import BatchIdentity, Progress
from runtime.contract.records.offset_map import OffsetMap, Run, UnmappedOffset
from runtime.contract.spec.naming import TopicPartition, name_id
from runtime.kafka import queries
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.protocol.offsets import ListedOffset
from runtime.kafka.protocol.transactions import ActiveProducer
from runtime.slot.health.inspection import (
    DestinationFacts,
    SourceFacts,
    accept_loss,
    judge_destination,
    judge_source,
    missing_markers,
)
from tests.fakes.progress import progress

SOURCE, DESTINATION, OTHER = b"s" * 16, b"d" * 16, b"x" * 16
ORDERS, USERS = TopicPartition("orders", 0), TopicPartition("users", 0)


def copied(position: int = 100, destination_end: int = 120) -> Progress:
    runs = (Run(0, 20, destination_end - 20),) if destination_end > 20 else ()
    return progress(0, 20, *runs, end=position)


@pytest.mark.parametrize(
    ("facts", "state"),
    [
        (SourceFacts(SOURCE, 0, 100), None),
        (SourceFacts(SOURCE, 100, 100), None),
        (SourceFacts(SOURCE, 101, 200), State.DATA_LOSS),
        (SourceFacts(SOURCE, 0, 99), State.DIVERGED),
        (SourceFacts(SOURCE, 0, 200, diverged_at=90), State.DIVERGED),
        (SourceFacts(OTHER, 0, 500), State.RECREATED),
        (SourceFacts(name_id("orders"), 0, 500), None),  # a cluster without ids cannot tell
        (SourceFacts(name_id("orders"), 0, 500, recreated=True), State.RECREATED),
    ],
)
def test_the_source_is_judged(facts: SourceFacts, state: State | None) -> None:
    finding = judge_source(copied(), facts)
    assert (finding.state if finding else None) is state


@pytest.mark.parametrize(
    ("facts", "state"),
    [
        (DestinationFacts(DESTINATION, 120), None),
        (DestinationFacts(DESTINATION, 500), None),
        (DestinationFacts(DESTINATION, 119), State.DIVERGED),
        (DestinationFacts(DESTINATION, 500, rewritten=True), State.DIVERGED),
        (DestinationFacts(OTHER, 500), State.RECREATED),
    ],
)
def test_the_destination_is_judged(facts: DestinationFacts, state: State | None) -> None:
    finding = judge_destination(copied(), facts)
    assert (finding.state if finding else None) is state


def test_a_finding_says_what_is_lost() -> None:
    finding = judge_source(copied(), SourceFacts(SOURCE, 150, 200))
    assert finding is not None
    assert "50 offsets, from 100 to 150" in finding.why


@pytest.mark.parametrize(
    ("last", "open_transactions", "decisions"),
    [
        (7, [], []),
        (7, [(7, 110)], [True]),  # It holds the last committed batch.
        (7, [(7, 120)], [False]),
        (7, [(8, 120)], [False]),
        (7, [(8, 110)], [None]),
        (7, [(9, 110)], []),  # another application's
        (7, [(9, 90), (7, 110)], [True]),
        (6, [(6, 110)], [True]),  # A slot had this producer id before.
        (6, [(6, 120)], []),
        (6, [(6, 110), (7, 130)], [True, False]),
    ],
)
def test_a_transaction_of_the_flow_that_is_still_open_lacks_its_marker(
    last: int, open_transactions: list[tuple[int, int]], decisions: list[bool | None]
) -> None:
    """Kafka 4.3 and 4.4 leave out the marker of a partition without a leader."""
    progress = replace(copied(destination_end=120), mark=BatchIdentity(last, 0, 0))
    producers = tuple(ActiveProducer(number, 0, 0, 0, 0, start) for number, start in open_transactions)
    facts = DestinationFacts(DESTINATION, 500, open_transactions=producers)
    assert [marker.commit for marker in missing_markers(progress, facts, {7, 8})] == decisions


HEALTHY = DestinationFacts(DESTINATION, 130)


@pytest.mark.parametrize(
    ("source", "destination", "position", "incarnation", "gaps"),
    [
        (SourceFacts(SOURCE, 150, 200), HEALTHY, 150, 0, [(100, 150)]),
        (SourceFacts(SOURCE, 0, 200, diverged_at=90), HEALTHY, 90, 1, []),
        (SourceFacts(SOURCE, 0, 200, diverged_at=0), HEALTHY, 0, 1, []),
        (SourceFacts(SOURCE, 50, 200, diverged_at=40), HEALTHY, 50, 1, [(40, 50)]),
        (SourceFacts(SOURCE, 0, 80), HEALTHY, 80, 1, []),
        (SourceFacts(OTHER, 7, 80), HEALTHY, 7, 1, []),
        (SourceFacts(name_id("orders"), 7, 80, recreated=True), HEALTHY, 7, 1, []),
        (SourceFacts(SOURCE, 0, 200), DestinationFacts(OTHER, 0), 100, 1, []),
        (SourceFacts(SOURCE, 150, 200), DestinationFacts(OTHER, 0), 150, 1, [(100, 150)]),
    ],
)
def test_an_accepted_loss_skips_no_record_that_exists(
    source: SourceFacts,
    destination: DestinationFacts,
    position: int,
    incarnation: int,
    gaps: list[tuple[int, int]],
) -> None:
    after = accept_loss(copied(), source, destination, destination_topic="orders", generation=2, now_ms=9)
    assert (after.position, after.incarnation) == (position, incarnation)
    assert [(gap.low, gap.end) for gap in after.gaps] == gaps
    assert judge_source(after, SourceFacts(source.topic_id, source.log_start, source.log_end)) is None
    assert judge_destination(after, destination) is None


def test_records_copied_before_a_side_was_recreated_are_unmapped() -> None:
    after = accept_loss(
        copied(), SourceFacts(OTHER, 0, 80), HEALTHY, destination_topic="orders", generation=2, now_ms=9
    )
    assert OffsetMap([after.open_span()]).translate(0) != UnmappedOffset()
    assert OffsetMap([after.open_span()]).origin(50) == UnmappedOffset()


def test_the_progress_names_the_topic_that_is_copied_into_from_then_on() -> None:
    """The flow's rename was changed: status and groups look for the records there."""
    facts = SourceFacts(SOURCE, 0, 200), DestinationFacts(OTHER, 0)
    after = accept_loss(copied(), *facts, destination_topic="dc1.orders", generation=2, now_ms=9)
    assert (after.destination_topic, after.destination_topic_id) == ("dc1.orders", OTHER)


@pytest.mark.parametrize("second", [100, 90])
async def test_an_end_below_the_expected_one_is_listed_again(
    monkeypatch: pytest.MonkeyPatch, second: int
) -> None:
    """A new leader's first answer may be too low. An end that is still too low is what the log shows."""
    answers = iter(
        [
            {ORDERS: ListedOffset(90, -1, 3), USERS: ListedOffset(7, -1, 3)},
            {ORDERS: ListedOffset(second, -1, 3)},
        ]
    )
    questions: list[set[TopicPartition]] = []

    async def list_offsets(
        cluster: object, asked: Mapping[TopicPartition, int], *_: object
    ) -> dict[TopicPartition, ListedOffset]:
        questions.append(set(asked))
        return next(answers)

    monkeypatch.setattr(queries, "list_offsets", list_offsets)
    cluster = cast(KafkaCluster, object())
    ends = await queries.log_ends(cluster, {ORDERS: 100, USERS: 7})
    assert ends == {ORDERS: ListedOffset(second, -1, 3), USERS: ListedOffset(7, -1, 3)}
    assert questions == [{ORDERS, USERS}, {ORDERS}]

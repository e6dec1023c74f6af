"""Pure functions compare both sides of a partition with the ledger, and compute accepted losses (R4)."""

from dataclasses import dataclass

from msgspec.structs import replace

from runtime.contract.records.advance import give_up, start_over
from runtime.contract.records.job_status import PartitionState as State
from runtime.contract.records.ledger import Progress
from runtime.contract.spec.naming import is_other_topic


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """The inspected state of a partition at the source.

    `diverged_at` is the offset from which the source's log differs from what was read: an older leader epoch
    ends before the position. `recreated` is told by the leader epoch, in a cluster without topic ids.
    """

    topic_id: bytes
    log_start: int
    log_end: int
    diverged_at: int | None = None
    recreated: bool = False


@dataclass(frozen=True, slots=True)
class DestinationFacts:
    """The inspected state of a partition at the destination.

    `rewritten` means that another batch is stored at the offset of the flow's last batch: the log was
    truncated below it and grew again. `leader_epoch` is the epoch of the leader that answered, or an older
    one.
    """

    topic_id: bytes
    log_end: int
    rewritten: bool = False
    leader_epoch: int = -1
    recreated: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """A reason why a partition must stop: the state that it enters, and the text for its status."""

    state: State
    why: str


def judge_source(progress: Progress, facts: SourceFacts) -> Finding | None:
    """Returns why the source contradicts the ledger's progress, or None."""
    position = progress.position
    if facts.recreated:
        return Finding(
            State.RECREATED,
            "the source's topic was recreated: its leader epoch and its end are not those of the one copied",
        )
    if is_other_topic(progress.source_topic_id, facts.topic_id):
        return Finding(
            State.RECREATED,
            f"the source's topic was recreated: its id is {facts.topic_id.hex()}, copied was"
            f" {progress.source_topic_id.hex()}",
        )
    if facts.log_start > position:
        lost = facts.log_start - position
        return Finding(
            State.DATA_LOSS,
            f"retention at the source passed the position: {lost} offsets, from {position} to"
            f" {facts.log_start}, are gone and were not copied",
        )
    if facts.diverged_at is not None:
        return Finding(
            State.DIVERGED,
            f"a leader change truncated the source to {facts.diverged_at}, copied was up to {position}",
        )
    if facts.log_end < position:
        return Finding(
            State.DIVERGED,
            f"the source ends at {facts.log_end}, copied was up to {position}: it was truncated",
        )
    return None


def judge_destination(progress: Progress, facts: DestinationFacts) -> Finding | None:
    """Returns why the destination contradicts the ledger's progress, or None."""
    end = progress.destination_end
    if facts.recreated:
        return Finding(
            State.RECREATED,
            "the destination's topic was recreated: its leader epoch and its end are not those of the one"
            " written",
        )
    if is_other_topic(progress.destination_topic_id, facts.topic_id):
        return Finding(
            State.RECREATED,
            f"the destination's topic was recreated: its id is {facts.topic_id.hex()}, written was"
            f" {progress.destination_topic_id.hex()}",
        )
    if facts.log_end < end:
        return Finding(
            State.DIVERGED,
            f"the destination's partition ends at {facts.log_end}, the ledger says {end}: it was truncated",
        )
    if facts.rewritten:
        return Finding(
            State.DIVERGED,
            f"a leader change truncated the destination below {end}, where the ledger says it ended, and"
            " something else was written there since",
        )
    return None


def accept_loss(
    progress: Progress,
    source: SourceFacts,
    destination: DestinationFacts,
    *,
    generation: int,
    now_ms: int,
) -> Progress:
    """Returns the progress to commit when the topology or an operator accepts the loss.

    No record that still exists is skipped: copying continues from the source's log start, from the offset to
    which it was truncated, or from the beginning of a recreated topic. A destination that was recreated or
    truncated receives the records from this position on.
    """
    recreated = source.recreated or is_other_topic(progress.source_topic_id, source.topic_id)
    restarted = recreated or judge_destination(progress, destination) is not None
    position = progress.position
    if recreated:
        position = source.log_start
    elif source.diverged_at is not None or source.log_end < position:
        parted = source.log_end if source.diverged_at is None else source.diverged_at
        position = min(position, source.log_end, parted)
        restarted = True
    skipped = replace(progress, position=position) if position < progress.position else progress
    if source.log_start > position:
        skipped = give_up(skipped, source.log_start, "lost", generation=generation, now_ms=now_ms)
        position = source.log_start
    if not restarted:
        return skipped
    return start_over(
        skipped,
        position=position,
        destination_end=destination.log_end,
        source_topic_id=source.topic_id,
        destination_topic_id=destination.topic_id,
        generation=generation,
        now_ms=now_ms,
    )

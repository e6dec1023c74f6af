"""Where a flow starts to copy: at an end of the log, at a time, or at an offset of each partition."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from planner.model.shapes import (
    AlternativesShape,
    ChoiceShape,
    IntegerShape,
    Key,
    MapShape,
    RecordName,
    TimestampShape,
    TopicNameShape,
    record_of,
)


@dataclass(frozen=True, slots=True)
class StartAt:
    """A start at the first or behind the last record: `earliest` or `latest`."""

    at: Literal["earliest", "latest"]


@dataclass(frozen=True, slots=True)
class StartAtTimestamp:
    """A start at the first record that is as late as a time."""

    record: ClassVar = RecordName("start-timestamp", "a start by time")

    timestamp_ms: Annotated[
        int,
        Key("The first record at or after this time.", TimestampShape(), example="2026-01-01T00:00:00Z"),
    ]


@dataclass(frozen=True, slots=True)
class StartAtOffsets:
    """A start at an offset of each partition.

    What is not named starts at earliest; with restart_from it stays where it is.
    """

    record: ClassVar = RecordName("start-offsets", "a start by offsets")

    offsets: Annotated[
        Mapping[str, Mapping[int, int]],
        Key(
            "By source topic and partition, which may stand in quotes; what is not named starts at earliest,"
            " and with `restart_from` stays where it is.",
            MapShape(
                TopicNameShape(),
                MapShape(IntegerShape(quoted=True), IntegerShape(0, 2**63 - 1), "partition", least=1),
                "topic",
                least=1,
            ),
            example="{orders: {0: 42}}",
        ),
    ]


EARLIEST = StartAt("earliest")
Start = StartAt | StartAtTimestamp | StartAtOffsets
START = AlternativesShape(
    (ChoiceShape(("earliest", "latest")), record_of(StartAtTimestamp), record_of(StartAtOffsets)),
    "earliest, latest, {timestamp: …} or {offsets: …}",
)

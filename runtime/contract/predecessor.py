"""Where the tool that a flow replaces keeps its positions."""

from msgspec import Struct


class ConnectOffsets(Struct, frozen=True):
    """Positions in an offsets topic of Connect at the destination.

    `alias` is the source's name in it; `group` is the group of the Connect workers.
    """

    topic: str
    alias: str
    group: str


class GroupCommits(Struct, frozen=True):
    """Positions that a consumer group has committed at the source."""

    group: str


StoredPositions = ConnectOffsets | GroupCommits

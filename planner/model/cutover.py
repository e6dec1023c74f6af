"""How far the waves of cutovers are. It is derived from the clusters, the ledgers and the history."""

from enum import StrEnum

from msgspec import Struct


class WaveState(StrEnum):
    """waiting: producers write at the source. fenced: they are stopped. moved: its topics are promoted."""

    WAITING = "waiting"
    FENCED = "fenced"
    MOVED = "moved"


class PlannedWave(Struct, frozen=True):
    """A wave as a plan shows it: how large it is, who moves with it, and how long the first copy takes.

    `topics` are those at the source, `left` of them have not moved. `size` is in bytes, None where it may not
    be read. `groups` are those that read its topics. `behind` are the records that its jobs had not copied
    when they last reported; None where no job has. `copy_ms` is the first copy of what no job copies yet, at
    `rate` bytes a second.
    """

    cutover: str
    wave: str
    source: str
    fence: str
    fenced: bool
    topics: int
    left: int
    partitions: int
    size: int | None
    groups: tuple[str, ...]
    rate: int
    behind: int | None
    copy_ms: int | None

    @property
    def state(self) -> WaveState:
        if self.topics and not self.left:
            return WaveState.MOVED
        return WaveState.FENCED if self.fenced else WaveState.WAITING


class Straggler(Struct, frozen=True):
    """What clients still do with a topic at the source after it has moved.

    `records` were written there since; `producers` are the ids that may have written them, `groups` those
    with members.
    """

    topic: str
    records: int
    producers: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


class WaveProgress(Struct, frozen=True):
    """How far a wave is. `left` are records that are not copied; None where that is not known.

    `pause_ms`: how long nobody could write its topics: from the fence to the end of the promotion, or until
    now. None where no fence says when that began.
    """

    cutover: str
    wave: str
    state: WaveState
    topics: tuple[str, ...]
    left: int | None
    gate: str
    pause_ms: int | None = None
    stragglers: tuple[Straggler, ...] = ()

"""A wave of a cutover as a plan shows it."""

from msgspec import Struct

from runtime.contract.results.waves import WaveState


class PlannedWave(Struct, frozen=True):
    """A wave in a plan: its size, the groups that move with it, and the duration of the first copy.

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

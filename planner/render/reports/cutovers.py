"""The waves of cutovers, as text. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from planner.graph.messages import few
from planner.render.readable import UNKNOWN, count, plural, span
from runtime.contract.results.waves import WaveProgress, WaveState

_STYLES = {WaveState.FENCED: "yellow", WaveState.UNKNOWN: "yellow", WaveState.MOVED: "green"}
_PROMOTED = (WaveState.MOVED, WaveState.RETURNING)


def wave_lines(waves: Sequence[WaveProgress]) -> Iterator[Text]:
    """Yields a line for each wave, and one for each topic that clients still use at the source."""
    longest = max((len(wave.wave) for wave in waves), default=0)
    for wave in waves:
        yield Text.assemble(
            f"  {wave.cutover}  ",
            (f"{wave.wave:<{longest}}", "bold"),
            "  ",
            (f"{wave.state:<7}", _STYLES.get(wave.state, "")),
            f"  {_topics(wave)}; fence: {wave.fence}{_pause(wave)}",
        )
        for straggler in wave.stragglers:
            written = f"{count(straggler.records)} records written since" if straggler.records else ""
            by = f" by {few(straggler.producers)}" if straggler.producers else ""
            read = f"read by {few(straggler.groups)}" if straggler.groups else ""
            yield Text(
                f"      {straggler.topic} at the source: {', '.join(filter(None, (written + by, read)))}"
            )


def _topics(wave: WaveProgress) -> str:
    topics = plural(len(wave.topics), "topic")
    if wave.state in _PROMOTED:
        return topics
    left = UNKNOWN if wave.left is None else count(wave.left)
    gate = f"; gate: {wave.gate}" if wave.state is WaveState.WAITING else ""
    return f"{topics}, {left} records left to copy{gate}"


def _pause(wave: WaveProgress) -> str:
    if wave.pause_ms is None:
        return ""
    return f"; write pause {span(wave.pause_ms)}{' so far' if wave.state is WaveState.FENCED else ''}"

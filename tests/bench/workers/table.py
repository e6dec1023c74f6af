"""The tables of the stories and of the throughput, as Markdown."""

from collections.abc import Sequence
from statistics import median

from tests.bench.workers.stories import Outcome
from tests.bench.workers.throughput import Speed

_STORIES = (
    *("story", "copying again s", "longest pause of the others s", "all slots run s"),
    *("records", "lost", "doubled", "reordered", "what happened"),
)
_SPEEDS = ("slots", "MB/s", "CPU-s/GB", "brokers' CPU-s/GB", "of the cores: repl", "brokers", "together")


def stories(rows: Sequence[Outcome]) -> str:
    lines = [_row(_STORIES), _row(["---", *["---:"] * 7, "---"])]
    for one in rows:
        times = (f"{seconds:.1f}" for seconds in (one.again_s, one.others_s, one.whole_s))
        counts = (f"{count:,}" for count in (one.records, one.lost, one.doubled, one.reordered))
        lines.append(_row([one.story, *times, *counts, one.note]))
    return "\n".join(lines)


def speeds(rows: Sequence[Speed]) -> str:
    """Medians of all rounds."""
    lines = [_row(_SPEEDS), _row(["---:"] * len(_SPEEDS))]
    for slots in sorted({one.slots for one in rows}):
        some = [one for one in rows if one.slots == slots]
        rate, ours, theirs = (
            median(getattr(one, name) for one in some)
            for name in ("mb_per_s", "cpu_s_per_gb", "brokers_cpu_s_per_gb")
        )
        shares = (
            median(values)
            for values in (
                [one.share for one in some],
                [one.brokers_share for one in some],
                [one.share + one.brokers_share for one in some],
            )
        )
        percents = (f"{share:.0%}" for share in shares)
        lines.append(_row([str(slots), f"{rate:,.0f}", f"{ours:.2f}", f"{theirs:.2f}", *percents]))
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"

"""The tables of the stories and of slots with a limit, as Markdown; and the picture of these."""

from collections.abc import Sequence

from tests import charts
from tests.bench.workers.scale import SLOTS, Scaled
from tests.bench.workers.stories import Outcome
from tests.charts import Chart, Line

_STORIES = (
    *("story", "copying again s", "longest pause of the others s", "all slots run s"),
    *("records", "lost", "doubled", "reordered", "what happened"),
)
_SCALED = (
    *("each slot has", "load", "slots", "MB/s", "records/s", "of linear", "a CPU-second is worth"),
    *("of linear at equal worth", "of the limits used", "brokers, of all cores", "all, of all cores"),
)


def stories(rows: Sequence[Outcome]) -> str:
    lines = [_row(_STORIES), _row(["---", *["---:"] * 7, "---"])]
    for one in rows:
        times = (f"{seconds:.1f}" for seconds in (one.again_s, one.others_s, one.whole_s))
        counts = (f"{count:,}" for count in (one.records, one.lost, one.doubled, one.reordered))
        lines.append(_row([one.story, *times, *counts, one.note]))
    return "\n".join(lines)


def scaled(rows: Sequence[Scaled]) -> str:
    """`of linear` compares with the row of one slot of the same limit and load.

    `a CPU-second is worth` compares `worth` of both rows.
    """
    lines = [_row(_SCALED), _row(["---", "---", *["---:"] * 9])]
    for some in _curves(rows):
        for row in some:
            rates = (f"{row.mb_per_s:,.0f}", f"{row.records_per_s:,.0f}")
            worth, linear = _worth(row, some[0]), _linear(some, row.slots)
            fair = [f"{worth:.2f}", f"{row.mb_per_s / worth / linear:.2f}"] if row.worth else ["", ""]
            grown = [f"{row.mb_per_s / linear:.2f}", *fair]
            shares = (f"{share:.0%}" for share in (row.used, row.brokers, row.machine))
            lines.append(_row([row.limit, row.shape, str(row.slots), *rates, *grown, *shares]))
    return "\n".join(lines)


def _curves(rows: Sequence[Scaled]) -> list[list[Scaled]]:
    """The rows of each limit and load."""
    keys = dict.fromkeys((row.limit, row.shape) for row in rows)
    return [[row for row in rows if (row.limit, row.shape) == key] for key in keys]


def _linear(curve: Sequence[Scaled], slots: int) -> float:
    """MB/s if every slot brought what the first one does."""
    return curve[0].mb_per_s / curve[0].slots * slots


def _worth(row: Scaled, first: Scaled) -> float:
    """What a second of CPU was worth in a row, compared with the first one's."""
    return row.worth / first.worth if row.worth and first.worth else 1.0


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def picture(rows: Sequence[Scaled]) -> str:
    """Draws MB/s over the number of slots as SVG: a chart for each limit, dashed what is linear.

    Where the limit is of CPU, it is what the slots would copy if a second were worth what the first row's is.
    """
    ticks = {float(slots): str(slots) for slots in SLOTS}
    drawn = []
    for limit in dict.fromkeys(row.limit for row in rows):
        curves = _curves([row for row in rows if row.limit == limit])
        what = "MB/s at an equal worth of a CPU-second" if curves[0][0].worth else "MB/s"
        lines = [
            Line(
                curve[0].shape,
                [(row.slots, row.mb_per_s / _worth(row, curve[0])) for row in curve],
                [(row.slots, _linear(curve, row.slots)) for row in curve],
            )
            for curve in curves
        ]
        drawn.append(Chart(f"{what} by slots, each slot with {limit}", ticks, lines))
    return charts.picture(drawn)

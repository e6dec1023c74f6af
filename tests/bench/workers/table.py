"""The tables of the stories and of slots with a limit, as Markdown; and the picture of these."""

from collections.abc import Sequence

from tests.bench.workers.scale import SLOTS, Scaled
from tests.bench.workers.stories import Outcome

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


_WIDTH, _HEIGHT, _LEFT, _TOP, _APART = 420, 160, 60, 30, 220
_COLOURS = {"uniform": "#1f77b4", "skewed": "#d62728"}


def picture(rows: Sequence[Scaled]) -> str:
    """Draws MB/s over the number of slots as SVG: a panel for each limit, with lines for linear growth.

    Where the limit is of CPU, it is what the slots would copy if a second were worth what the first row's is.
    """
    limits = list(dict.fromkeys(row.limit for row in rows))
    size = f'width="{_LEFT + _WIDTH + 120}" height="{_APART * len(limits) + 10}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for number, limit in enumerate(limits):
        panel = _panel([row for row in rows if row.limit == limit])
        parts += [f'<g transform="translate(0 {_TOP + number * _APART})">', *panel, "</g>"]
    return "\n".join([*parts, "</svg>\n"])


def _panel(rows: Sequence[Scaled]) -> list[str]:
    curves = _curves(rows)
    most = max(_linear(some, SLOTS[-1]) for some in curves)

    def line(points: Sequence[tuple[int, float]], style: str) -> str:
        drawn = " ".join(f"{_x(slots):.1f},{_HEIGHT * (1 - rate / most):.1f}" for slots, rate in points)
        return f'<polyline points="{drawn}" fill="none" {style}/>'

    right = _LEFT + _WIDTH + 10
    what = "MB/s at an equal worth of a CPU-second" if rows[0].worth else "MB/s"
    parts = [
        f'<text x="{_LEFT}" y="-8" font-weight="bold">{what}, each slot with {rows[0].limit}</text>',
        f'<line x1="{_LEFT}" y1="{_HEIGHT}" x2="{_LEFT + _WIDTH}" y2="{_HEIGHT}" stroke="#888"/>',
        f'<text x="{_LEFT - 6}" y="10" text-anchor="end">{most:,.0f}</text>',
        f'<text x="{_LEFT - 6}" y="{_HEIGHT}" text-anchor="end">0</text>',
        f'<text x="{right}" y="{_HEIGHT + 16}">slots</text>',
        f'<text x="{right}" y="{14 + 15 * len(curves)}" fill="#888">dashed: linear</text>',
    ]
    parts += [
        f'<text x="{_x(slots):.0f}" y="{_HEIGHT + 16}" text-anchor="middle">{slots}</text>' for slots in SLOTS
    ]
    for number, some in enumerate(curves):
        colour = _COLOURS[some[0].shape]
        linear = [(row.slots, _linear(some, row.slots)) for row in some]
        parts += [
            line(linear, f'stroke="{colour}" stroke-dasharray="3 3"'),
            line(
                [(row.slots, row.mb_per_s / _worth(row, some[0])) for row in some],
                f'stroke="{colour}" stroke-width="2"',
            ),
            f'<text x="{right}" y="{14 + 15 * number}" fill="{colour}">{some[0].shape}</text>',
        ]
    return parts


def _x(slots: int) -> float:
    return _LEFT + slots / SLOTS[-1] * _WIDTH

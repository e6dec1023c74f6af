"""The tables of the stories and of slots with a share of a core, as Markdown; and the picture of these."""

from collections.abc import Sequence
from dataclasses import dataclass

from tests.bench.workers.shares import SHAPES, SLOTS, Scaled
from tests.bench.workers.stories import Outcome

_STORIES = (
    *("story", "copying again s", "longest pause of the others s", "all slots run s"),
    *("records", "lost", "doubled", "reordered", "what happened"),
)
_SCALED = ("load", "slots", "MB/s", "records/s", "of linear", "of the shares used", "brokers, of all cores")


def stories(rows: Sequence[Outcome]) -> str:
    lines = [_row(_STORIES), _row(["---", *["---:"] * 7, "---"])]
    for one in rows:
        times = (f"{seconds:.1f}" for seconds in (one.again_s, one.others_s, one.whole_s))
        counts = (f"{count:,}" for count in (one.records, one.lost, one.doubled, one.reordered))
        lines.append(_row([one.story, *times, *counts, one.note]))
    return "\n".join(lines)


def scaled(rows: Sequence[Scaled]) -> str:
    """`of linear` compares with the row of one slot of the same load."""
    single = {row.shape: row.mb_per_s for row in rows if row.slots == 1}
    lines = [_row(_SCALED), _row(["---", *["---:"] * 6])]
    for row in rows:
        rates = (f"{row.mb_per_s:,.0f}", f"{row.records_per_s:,.0f}")
        linear = f"{row.mb_per_s / (single[row.shape] * row.slots):.2f}"
        lines.append(
            _row([row.shape, str(row.slots), *rates, linear, f"{row.used:.0%}", f"{row.brokers:.0%}"])
        )
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


_WIDTH, _HEIGHT, _LEFT, _TOP = 420, 200, 60, 30
_COLOURS = {"uniform": "#1f77b4", "skewed": "#d62728"}


@dataclass(frozen=True)
class _Plane:
    """Where MB/s of so many slots is drawn."""

    most: float

    def at(self, slots: int, mb_per_s: float) -> str:
        x = _LEFT + slots / SLOTS[-1] * _WIDTH
        return f"{x:.1f},{_TOP + _HEIGHT - mb_per_s / self.most * _HEIGHT:.1f}"


def picture(rows: Sequence[Scaled]) -> str:
    """Draws MB/s over the number of slots, for each load, and what linear growth would be, as SVG."""
    plane = _Plane(max(row.mb_per_s / row.slots for row in rows) * SLOTS[-1])
    bottom, share = _TOP + _HEIGHT, rows[0].share
    size = f'width="{_LEFT + _WIDTH + 120}" height="{bottom + 40}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{_LEFT}" y="18" font-weight="bold">MB/s, each slot with {share:.0%} of a core</text>',
        f'<line x1="{_LEFT}" y1="{bottom}" x2="{_LEFT + _WIDTH}" y2="{bottom}" stroke="#888"/>',
        f'<text x="{_LEFT - 6}" y="{_TOP + 10}" text-anchor="end">{plane.most:,.0f}</text>',
        f'<text x="{_LEFT - 6}" y="{bottom}" text-anchor="end">0</text>',
        f'<text x="{_LEFT + _WIDTH + 10}" y="{bottom + 16}">slots</text>',
    ]
    for slots in SLOTS:
        x = _LEFT + slots / SLOTS[-1] * _WIDTH
        parts.append(f'<text x="{x:.0f}" y="{bottom + 16}" text-anchor="middle">{slots}</text>')
    for number, shape in enumerate(SHAPES):
        some = [row for row in rows if row.shape == shape]
        if not some:
            continue
        colour = _COLOURS[shape]
        points = " ".join(plane.at(row.slots, row.mb_per_s) for row in some)
        linear = " ".join(plane.at(row.slots, row.slots * some[0].mb_per_s / some[0].slots) for row in some)
        parts += [
            f'<polyline points="{linear}" fill="none" stroke="{colour}" stroke-dasharray="3 3"/>',
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>',
            f'<text x="{_LEFT + _WIDTH + 10}" y="{_TOP + 14 + 15 * number}" fill="{colour}">{shape}</text>',
        ]
    parts.append(f'<text x="{_LEFT + _WIDTH + 10}" y="{_TOP + 44}" fill="#888">dashed: linear</text>')
    return "\n".join([*parts, "</svg>\n"])

"""Line charts as SVG, one below the other: the pictures of programs that measure for long."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

_WIDTH, _HEIGHT, _LEFT, _LEGEND, _APART = 720, 150, 60, 220, 60
_COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#e377c2", "#7f7f7f")
Points = Sequence[tuple[float, float]]


class Line(NamedTuple):
    """A line in the legend. `expected` is drawn dashed in the same colour."""

    name: str
    points: Points
    expected: Points = ()


class Chart(NamedTuple):
    """`ticks` are the texts below the axis, by their places on it. The last one is its end."""

    title: str
    ticks: Mapping[float, str]
    lines: Sequence[Line]


def picture(charts: Sequence[Chart]) -> str:
    """Draws the charts."""
    size = f'width="{_LEFT + _WIDTH + _LEGEND}" height="{len(charts) * (_HEIGHT + _APART) + 20}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for number, chart in enumerate(charts):
        at = number * (_HEIGHT + _APART) + 30
        parts += [f'<g transform="translate(0 {at})">', *_chart(chart), "</g>"]
    return "\n".join([*parts, "</svg>\n"])


def _chart(chart: Chart) -> list[str]:
    every = [value for line in chart.lines for _, value in (*line.points, *line.expected)]
    most, end = max(every) or 1.0, max(chart.ticks) or 1.0

    def drawn(points: Points, style: str) -> str:
        places = [
            (f"{_LEFT + at / end * _WIDTH:.1f}", f"{_HEIGHT - value / most * _HEIGHT:.1f}")
            for at, value in points
        ]
        corners = " ".join(",".join(place) for place in _corners(places))
        return f'<polyline points="{corners}" fill="none" {style}/>'

    parts = [
        f'<text x="{_LEFT}" y="-8" font-weight="bold">{chart.title}</text>',
        f'<line x1="{_LEFT}" y1="{_HEIGHT}" x2="{_LEFT + _WIDTH}" y2="{_HEIGHT}" stroke="#888"/>',
        f'<text x="{_LEFT - 6}" y="10" text-anchor="end">{most:,.0f}</text>',
        f'<text x="{_LEFT - 6}" y="{_HEIGHT}" text-anchor="end">0</text>',
    ]
    for at, text in chart.ticks.items():
        x = f"{_LEFT + at / end * _WIDTH:.0f}"
        parts.append(f'<text x="{x}" y="{_HEIGHT + 16}" text-anchor="middle">{text}</text>')
    for number, line in enumerate(chart.lines):
        colour = _COLOURS[number % len(_COLOURS)]
        parts.append(drawn(line.points, f'stroke="{colour}" stroke-width="1.5"'))
        if line.expected:
            parts.append(drawn(line.expected, f'stroke="{colour}" stroke-dasharray="3 3"'))
        y = 14 + 15 * number
        parts.append(f'<text x="{_LEFT + _WIDTH + 10}" y="{y}" fill="{colour}">{line.name}</text>')
    return parts


def _corners(places: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Leaves out the points of a level stretch between its ends."""
    return [
        places[at]
        for at in range(len(places))
        if not 0 < at < len(places) - 1 or {places[at - 1][1], places[at + 1][1]} != {places[at][1]}
    ]

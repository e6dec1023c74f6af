"""The drawing of a topology: clusters are boxes in layers, and flows are arrows. Pure.

Layers go from sources to destinations. An arrow in the opposite direction, as in a two-way pair, lies beside
the others. The same layers are laid out across (for a wide screen) or down (for a phone).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Generic, Protocol, TypeVar


class DrawnFlow(Protocol):
    """What a drawing needs of a flow."""

    @property
    def name(self) -> str: ...
    @property
    def source_cluster(self) -> str: ...
    @property
    def destination_cluster(self) -> str: ...


FlowType = TypeVar("FlowType", bound=DrawnFlow)


@dataclass(frozen=True, slots=True)
class Box:
    """The rectangle of one cluster."""

    name: str
    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> tuple[float, float]:
        return self.x + self.width / 2, self.y + self.height / 2


@dataclass(frozen=True, slots=True)
class Arrow(Generic[FlowType]):
    """The cubic curve of one flow, and the position of its label."""

    flow: FlowType
    path: str
    label_x: float
    label_y: float


@dataclass(frozen=True, slots=True)
class Drawing(Generic[FlowType]):
    """All boxes and arrows, and the size of the whole."""

    width: float
    height: float
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow[FlowType], ...]


MARGIN = 18.0
Point = tuple[float, float]


def layers_of(names: Sequence[str], ends: Iterable[tuple[str, str]]) -> dict[str, int]:
    """Returns each cluster's layer: its longest distance from a cluster without sources.

    Arrows that close a loop are left out.
    """
    following: dict[str, list[str]] = {name: [] for name in names}
    for source, destination in sorted(set(ends)):
        following[source].append(destination)
    layer = dict.fromkeys(names, 0)
    forward: list[tuple[str, str]] = []
    state: dict[str, int] = {}

    def visit(name: str) -> None:
        state[name] = 1
        for other in following[name]:
            if state.get(other) == 1:
                continue
            forward.append((name, other))
            if other not in state:
                visit(other)
        state[name] = 2

    reached = {destination for others in following.values() for destination in others}
    for name in sorted(names, key=lambda name: (name in reached, name)):
        if name not in state:
            visit(name)
    for _ in names:
        for source, destination in forward:
            layer[destination] = max(layer[destination], layer[source] + 1)
    return layer


@dataclass(frozen=True, slots=True)
class Arrangement:
    """Sizes and distances of a drawing, and the class of its style.

    `along` is the direction from source to destination, `across` the other one.
    """

    css: str
    along: float  # a box's size
    across: float
    gap_along: float
    gap_across: float
    beside: float  # between arrows of the same pair
    bow: float  # of an arrow, for each layer that it passes
    down: bool

    def draw(self, clusters: Iterable[str], flows: Sequence[FlowType]) -> Drawing[FlowType]:
        """Returns the drawing of these clusters and flows."""
        connected = frozenset(
            end for flow in flows for end in (flow.source_cluster, flow.destination_cluster)
        )
        names = sorted({*clusters, *connected})
        layers = layers_of(names, [(flow.source_cluster, flow.destination_cluster) for flow in flows])
        places = self._places(layers, connected)
        curves = [
            (flow, self._curve(places[flow.source_cluster], places[flow.destination_cluster], beside))
            for flow, beside in self._beside(flows)
        ]
        return self._drawing(places, curves)

    def _places(self, layers: Mapping[str, int], connected: frozenset[str]) -> dict[str, Point]:
        """Returns the middle of each box as (along, across). Layers are centred; unconnected
        clusters come last.
        """
        ordered = sorted(layers, key=lambda name: (layers[name], name not in connected, name))
        places: dict[str, Point] = {}
        for layer, members in groupby(ordered, key=lambda name: layers[name]):
            column = list(members)
            for number, name in enumerate(column):
                across = (number - (len(column) - 1) / 2) * (self.across + self.gap_across)
                places[name] = (layer * (self.along + self.gap_along), across)
        return places

    def _beside(self, flows: Sequence[FlowType]) -> list[tuple[FlowType, float]]:
        """Returns the sideways distance of each arrow: arrows between the same clusters lie side by side."""

        def pair(flow: FlowType) -> tuple[str, ...]:
            return tuple(sorted((flow.source_cluster, flow.destination_cluster)))

        placed = []
        for _, members in groupby(
            sorted(flows, key=lambda flow: (pair(flow), flow.source_cluster, flow.name)), key=pair
        ):
            alike = list(members)
            for number, flow in enumerate(alike):
                placed.append((flow, (number - (len(alike) - 1) / 2) * self.beside))
        return placed

    def _curve(self, source: Point, destination: Point, beside: float) -> tuple[Point, ...]:
        """Returns start, two handles and end. A curve that passes other layers bends around them."""
        towards = 1 if destination[0] >= source[0] else -1
        step = self.along + self.gap_along
        passed = max(round(abs(destination[0] - source[0]) / step) - 1, 0)
        bow = -passed * self.bow
        reach = min(abs(beside), self.across / 2 - 8)
        port = reach if beside > 0 else -reach
        if passed:
            port = 0.2 * beside - self.across / 2 + 14  # on the side of the bow
        start = (source[0] + towards * self.along / 2, source[1] + port)
        end = (destination[0] - towards * self.along / 2, destination[1] + port)
        handle = towards * max(abs(end[0] - start[0]) * 0.45, 30)
        swell = (beside - port) * 4 / 3
        return (
            start,
            (start[0] + handle, start[1] + swell + bow),
            (end[0] - handle, end[1] + swell + bow),
            end,
        )

    def _drawing(
        self,
        places: Mapping[str, Point],
        curves: Sequence[tuple[FlowType, tuple[Point, ...]]],
    ) -> Drawing[FlowType]:
        """Moves everything right of and below the margin, and turns it if it is laid out downwards."""
        half_along, half_across = self.along / 2, self.across / 2
        middles = [_at_half(curve) for _, curve in curves]
        label_across = 78.0 if self.down else 22.0
        across = [at[1] + side * half_across for at in places.values() for side in (-1, 1)]
        across += [at[1] + side * label_across for at in middles for side in (-1, 1)]
        along = [at[0] + side * half_along for at in places.values() for side in (-1, 1)]
        origin = (min(along, default=0) - MARGIN, min(across, default=0) - MARGIN)
        size = (max(along, default=0) + MARGIN - origin[0], max(across, default=0) + MARGIN - origin[1])

        def turned(at: Point) -> Point:
            moved = (at[0] - origin[0], at[1] - origin[1])
            return (moved[1], moved[0]) if self.down else moved

        width, height = (size[1], size[0]) if self.down else size
        box_width, box_height = (self.across, self.along) if self.down else (self.along, self.across)
        boxes = []
        for name, at in sorted(places.items()):
            x, y = turned(at)
            boxes.append(Box(name, x - box_width / 2, y - box_height / 2, box_width, box_height))
        arrows = []
        for (flow, curve), middle in zip(curves, middles, strict=True):
            start, first_control, second_control, end = (turned(point) for point in curve)
            path = f"M{_pair(start)} C{_pair(first_control)} {_pair(second_control)} {_pair(end)}"
            arrows.append(Arrow(flow, path, *turned(middle)))
        return Drawing(width, height, tuple(boxes), tuple(arrows))


ACROSS_THE_SCREEN = Arrangement(
    css="wide", along=168, across=76, gap_along=230, gap_across=44, beside=46, bow=168, down=False
)
DOWN_THE_SCREEN = Arrangement(
    css="tall", along=76, across=168, gap_along=120, gap_across=104, beside=168, bow=310, down=True
)


def _at_half(curve: Sequence[Point]) -> Point:
    start, first_control, second_control, end = curve
    return tuple(
        (a + 3 * b + 3 * c + d) / 8
        for a, b, c, d in zip(start, first_control, second_control, end, strict=True)
    )  # type: ignore[return-value]


def _pair(at: Point) -> str:
    return f"{at[0]:.1f},{at[1]:.1f}"

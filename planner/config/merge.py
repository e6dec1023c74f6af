"""Merges several documents into one tree: maps are joined by name, lists are concatenated."""

from collections.abc import Sequence as Many

from planner.config.yaml_tree.nodes import Mapping, Node, Scalar, Sequence
from planner.model import shapes
from planner.model.diagnostic import Diagnostic, error
from planner.model.shapes import RecordShape, Shape


def merged(record: RecordShape, roots: Many[Mapping]) -> tuple[Mapping, list[Diagnostic]]:
    """Returns one mapping with the content of all. A name that stands twice is an error with both places."""
    diagnostics: list[Diagnostic] = []
    return _mapping(record, roots, diagnostics), diagnostics


def _mapping(record: RecordShape, roots: Many[Mapping], diagnostics: list[Diagnostic]) -> Mapping:
    if len(roots) == 1:
        return roots[0]
    entries_of: dict[str, list[tuple[Scalar, Node]]] = {}
    for root in roots:
        for key, value in root.pairs:
            entries_of.setdefault(key.text, []).append((key, value))
    pairs = []
    for name, entries in entries_of.items():
        known = record.by_name.get(name)
        if known is None:
            # Unknown keys are all shown, each at its place.
            pairs += entries
        else:
            pairs.append((entries[0][0], _value(known.shape, entries, diagnostics)))
    first = roots[0]
    return Mapping(tuple(pairs), first.file, first.line, first.column)


def _value(shape: Shape, entries: list[tuple[Scalar, Node]], diagnostics: list[Diagnostic]) -> Node:
    key, first = entries[0]
    if len(entries) == 1:
        return first
    values = [value for _, value in entries]
    if isinstance(shape, shapes.ListShape) and all(isinstance(value, Sequence) for value in values):
        items = tuple(item for value in values if isinstance(value, Sequence) for item in value.items)
        return Sequence(items, first.file, first.line, first.column)
    maps = [value for value in values if isinstance(value, Mapping)]
    if len(maps) == len(values) and isinstance(shape, shapes.RecordShape):
        return _mapping(shape, maps, diagnostics)
    if len(maps) == len(values) and isinstance(shape, shapes.MapShape | shapes.SettingsShape):
        return _named(maps, diagnostics)
    for other, value in entries[1:]:
        same = isinstance(first, Scalar) and isinstance(value, Scalar) and first.text == value.text
        if not same:
            what = f'"{key.text}" stands in two places, first at {key.source}'
            diagnostics.append(error(what, "say it once", source=other.source))
    return first


def _named(maps: list[Mapping], diagnostics: list[Diagnostic]) -> Mapping:
    pairs: dict[str, tuple[Scalar, Node]] = {}
    for one in maps:
        for key, value in one.pairs:
            if key.text in pairs:
                what = f'"{key.text}" stands in two places, first at {pairs[key.text][0].source}'
                diagnostics.append(error(what, "keep one of the two", source=key.source))
            else:
                pairs[key.text] = (key, value)
    return Mapping(tuple(pairs.values()), maps[0].file, maps[0].line, maps[0].column)

"""DeepDiff over the typed values of two objects, with one comparator for each type of field.

Objects that are equal cost one comparison of two mappings. DeepDiff gets the others in one run, and of them
only the values that are not equal letter by letter; docs/internals/diff.md has the measurements.
"""

import importlib
import sys
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from msgspec import Struct

from planner.diff import values
from planner.diff.fields import type_of
from planner.diff.values import same_value
from planner.model.change import SENSITIVE, FieldChange, Path, Value
from planner.model.observed import BEFORE, CONFIG


@dataclass(frozen=True, slots=True)
class Secret:
    """A value that is compared and never shown."""

    text: str = field(repr=False)


Leaf = Value | Secret
Tree = Mapping[Path, Leaf]  # the values of one object by path; an absent path is a field that is not set
TreePath = tuple[int, Path]  # a path in one of several trees


class PathDifference(Struct, frozen=True):
    """A path at which two trees differ, with both values. None is a field that is not set."""

    path: Path
    old: Leaf
    new: Leaf

    def change(self, note: str = "", inherited: str | None = None) -> FieldChange:
        """Returns the field of a plan's change, which holds no secret."""
        sensitive = isinstance(self.old, Secret) or isinstance(self.new, Secret)
        return FieldChange(
            self.path, without_secret(self.old), without_secret(self.new), sensitive, note, inherited
        )


def without_secret(leaf: Leaf) -> Value:
    """Returns the value, or the marker for sensitive values in place of a secret."""
    return SENSITIVE if isinstance(leaf, Secret) else leaf


def differences(pairs: Sequence[tuple[Tree, Tree]]) -> list[tuple[PathDifference, ...]]:
    """Returns the differences of each pair (old, new), in the order of the new tree's paths."""
    results: list[list[PathDifference]] = [[] for _ in pairs]
    unequal = {
        (number, path): PathDifference(path, *both)
        for number, (old, new) in enumerate(pairs)
        if old != new
        for path in dict.fromkeys((*new, *old))
        if (both := (old.get(path), new.get(path)))[0] != both[1]
    }
    # Many objects may differ alike: the same values at the same path are compared once. Mappings can't
    # be looked up.
    first: dict[Hashable, TreePath] = {}
    places = {}
    for place, pair in unequal.items():
        has_mapping = isinstance(pair.old, Mapping) or isinstance(pair.new, Mapping)
        places[place] = first.setdefault(place if has_mapping else pair, place)
    different = _deep_diff({place: unequal[place] for place in first.values()}) if unequal else {}
    for place, alike in places.items():
        if alike in different:
            results[place[0]].append(different[alike])
    return [tuple(of_pair) for of_pair in results]


def changed_fields(old: Mapping[str, Value], new: Mapping[str, Value]) -> tuple[FieldChange, ...]:
    """Returns the fields of a flow or a job that differ."""
    (differing,) = differences([(_tree(old), _tree(new))])
    return tuple(difference.change() for difference in differing)


def same(path: Path, old: object, new: object) -> bool:
    """Returns whether two values of a field mean the same. A list that was read from JSON equals a tuple."""
    if old is None or new is None:
        return old is new
    match type_of(path):
        case values.SETTING:  # two texts, as the broker parses them: numbers, flags, lists without an order
            key = path[-1].removeprefix(CONFIG).removeprefix(BEFORE)
            texts = (value.text if isinstance(value, Secret) else str(value) for value in (old, new))
            return same_value(key, *texts)
        case values.PATTERNS if isinstance(old, list | tuple) and isinstance(new, list | tuple):
            # A name is selected if any pattern matches it, so neither order nor repetition has a meaning.
            return set(map(str, old)) == set(map(str, new))
        case _:
            return _listed(old) == _listed(new)


def _listed(value: object) -> object:
    match value:
        case list() | tuple():
            return [_listed(part) for part in value]
        case Mapping():
            return {key: _listed(member) for key, member in value.items()}
        case _:
            return value


def _tree(fields: Mapping[str, Value]) -> Tree:
    return {(name,): value for name, value in fields.items()}


def _deep_diff(unequal: Mapping[TreePath, PathDifference]) -> dict[TreePath, PathDifference]:
    delta = _imported_deepdiff().DeepDiff(
        {place: difference.old for place, difference in unequal.items()},
        {place: difference.new for place, difference in unequal.items()},
        custom_operators=[_FieldOperator()],
        view="tree",
        threshold_to_diff_deeper=0,
    )
    levels = (level for levels in delta.values() for level in levels)
    return {(place := _place(level)): PathDifference(place[1], level.t1, level.t2) for level in levels}


def _imported_deepdiff() -> ModuleType:
    """Imports deepdiff, without the packages that it supports and nothing here uses.

    It takes 0.05 s, with all of them 0.7 s, and most plans have nothing to compare.
    """
    supported = ("numpy", "pandas", "polars", "pydantic")
    hidden = [name for name in supported if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]  # what Python takes for a module that is missing
    try:
        return importlib.import_module("deepdiff")
    finally:
        for name in hidden:
            del sys.modules[name]


def _place(level: Any) -> TreePath:
    """Returns the key of the flat mapping: DeepDiff's path, without the text that `path()` makes of it."""
    place: TreePath = level.up.t1_child_rel.param
    return place


class _FieldOperator:
    """DeepDiff's custom operator: a field is compared by the comparator of its type, and as a whole.

    Words, numbers and flags are left to DeepDiff.
    """

    def match(self, level: Any) -> bool:
        """Returns whether this level is a field that DeepDiff would not compare as the product does."""
        if level.up is None:
            return False
        parts = (list, tuple, Mapping)
        return (
            isinstance(level.t1, parts)
            or isinstance(level.t2, parts)
            or type_of(_place(level)[1]) in (values.SETTING, values.PATTERNS)
        )

    def give_up_diffing(self, level: Any, diff_instance: Any) -> bool:
        """Reports the field where its values differ. DeepDiff never looks into the values (returns True)."""
        if not same(_place(level)[1], level.t1, level.t2):
            diff_instance.custom_report_result("values_changed", level)
        return True

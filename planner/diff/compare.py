"""Which of the compared values differ. Equal objects cost one dict comparison; the rest meets deepdiff."""

from collections.abc import Iterable, Mapping, Sequence

from planner.diff.values import Normal

Path = tuple[str, ...]
Value = Normal | int
Scoped = Mapping[Path, Value]
Pair = tuple[Value, Value]


def differing(pairs: Sequence[tuple[Scoped, Scoped]]) -> list[frozenset[Path]]:
    """For each pair (wanted, live), the paths at which they are not the same."""
    nothing: frozenset[Path] = frozenset()
    unequal = [index for index, (wanted, live) in enumerate(pairs) if wanted != live]
    found = [nothing] * len(pairs)
    if unequal:
        different = _different(
            (value, pairs[index][1][path]) for index in unequal for path, value in pairs[index][0].items()
        )
        for index in unequal:
            wanted, live = pairs[index]
            found[index] = frozenset(
                path for path, value in wanted.items() if (value, live[path]) in different
            )
    return found


def _different(values: Iterable[Pair]) -> frozenset[Pair]:
    """Each two values are compared once, however many topics have them."""
    # Imported here: it takes 0.1 s, and most plans have nothing to compare.
    from deepdiff import DeepDiff

    distinct = list(dict.fromkeys(pair for pair in values if pair[0] is not pair[1]))
    delta = DeepDiff(
        {number: pair[0] for number, pair in enumerate(distinct)},
        {number: pair[1] for number, pair in enumerate(distinct)},
        view="tree",
        threshold_to_diff_deeper=0,
    )
    numbers = {level.path(output_format="list")[0] for levels in delta.values() for level in levels}
    return frozenset(distinct[number] for number in numbers)

"""Which of the compared values differ. Equal objects cost one dict comparison; the rest meets deepdiff."""

from collections.abc import Mapping, Sequence

from planner.diff.values import Normal

Path = tuple[str, ...]
Scoped = Mapping[Path, Normal | int]


def differing(pairs: Sequence[tuple[Scoped, Scoped]]) -> list[frozenset[Path]]:
    """For each pair (wanted, live), the paths at which they are not the same."""
    unequal = [index for index, (wanted, live) in enumerate(pairs) if wanted != live]
    found: list[set[Path]] = [set() for _ in pairs]
    if unequal:
        # One call for all of them: deepdiff's cost is in its start. It takes 0.1 s to import, too.
        from deepdiff import DeepDiff

        delta = DeepDiff(
            {(index, path): value for index in unequal for path, value in pairs[index][0].items()},
            {(index, path): value for index in unequal for path, value in pairs[index][1].items()},
            view="tree",
            threshold_to_diff_deeper=0,
        )
        for level in (level for levels in delta.values() for level in levels):
            index, path = level.path(output_format="list")[0]
            found[index].add(path)
    return [frozenset(paths) for paths in found]

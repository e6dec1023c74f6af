"""Finds keys of the language by their path, such as `flows.topics.include`, for `repl explain`."""

import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from planner.config.hints import did_you_mean, nearest
from planner.config.schema.publish import inside, without_links
from planner.model.diagnostic import Failure, error
from planner.model.topology import Topology
from runtime.contract.spec.shapes import Key, MapShape, RecordShape, Shape, record_of

_DEFAULTS = "defaults."


class KeyEntry(NamedTuple):
    """A key of the language at its place: `flows.topics.include`."""

    path: str
    key: Key

    @property
    def doc(self) -> str:
        return without_links(self.key.doc)

    @property
    def below(self) -> tuple["KeyEntry", ...]:
        return tuple(KeyEntry(f"{self.path}.{key.name}", key) for key in _keys(self.key.shape))


def top_keys() -> tuple[KeyEntry, ...]:
    return tuple(KeyEntry(key.name, key) for key in record_of(Topology).keys)


def find_keys(words: str) -> list[KeyEntry]:
    """Returns the key of this path, or every key whose path ends so. Failure names the nearest.

    Names that a user chooses may stand in the path, as `dc1` in `clusters.dc1.client`, and numbers of items
    in brackets.
    """
    path = re.sub(r"\[[^\]]*\]", "", words).strip(".")
    exact = _at(path)
    if exact is not None:
        return [exact]
    ending = [entry for entry in all_keys() if entry.path.endswith(f".{path}")]
    outside_defaults = [entry for entry in ending if not entry.path.startswith(_DEFAULTS)]
    if outside_defaults or ending:
        return outside_defaults or ending
    raise Failure(error(f'the language has no key "{path}"', _hint(path)))


def same_name(entry: KeyEntry) -> list[str]:
    """Returns the paths of the other keys of this name."""
    return [
        other.path for other in all_keys() if other.key.name == entry.key.name and other.path != entry.path
    ]


def _at(path: str) -> KeyEntry | None:
    """Returns the key of a path that begins at the top; a flow is one of `flows`."""
    keys, names, entry = _by_name(record_of(Topology)), False, None
    written: list[str] = []
    for word in path.split("."):
        key = keys.get(word) or (keys.get(f"{word}s") if not written else None)
        if key is None:
            if not names:
                return None
            names = False  # it is a name that the user chose
            continue
        written.append(key.name)
        entry = KeyEntry(".".join(written), key)
        keys, names = _by_name(key.shape), _takes_names(key.shape)
    return entry


def _hint(path: str) -> str:
    """Returns the nearest path: the nearest key below what is right of it, else the nearest name anywhere."""
    above, _, word = path.rpartition(".")
    parent = _at(above) if above else None
    names = [entry.key.name for entry in (parent.below if parent is not None else top_keys())]
    close = nearest(word, names)
    if close is not None:
        return f'did you mean "{parent.path}.{close}"?' if parent is not None else f'did you mean "{close}"?'
    everywhere = sorted({entry.key.name for entry in all_keys()})
    return did_you_mean(word, everywhere) or "repl explain lists the keys at the top"


@cache
def all_keys() -> tuple[KeyEntry, ...]:
    def walk(entries: tuple[KeyEntry, ...]) -> Iterator[KeyEntry]:
        for entry in entries:
            yield entry
            yield from walk(entry.below)

    return tuple(walk(top_keys()))


def _by_name(shape: Shape) -> dict[str, Key]:
    return {key.name: key for key in _keys(shape)}


def _keys(shape: Shape) -> tuple[Key, ...]:
    """Returns the keys that a value of this shape may have, of all its alternatives."""
    if isinstance(shape, RecordShape):
        return shape.keys
    keys: dict[str, Key] = {}
    for part in inside(shape):
        for key in _keys(part):
            keys.setdefault(key.name, key)
    return tuple(keys.values())


def _takes_names(shape: Shape) -> bool:
    return isinstance(shape, MapShape) or any(_takes_names(part) for part in inside(shape))

"""Versions of subjects, and which of them a registry lacks. Pure."""

import hashlib
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

_MOST_LEVELS: Final = 100  # of references; a copy refuses more


class SchemaVersion(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A version of a subject. The texts of schemas with the same `fingerprint` are the same.

    `references` are the subjects and versions that its schema refers to. Where registries are compared,
    `referred` stands for the schemas of these, which may have other versions at another registry.
    """

    number: int
    id: int
    fingerprint: str
    references: tuple[tuple[str, int], ...] = ()
    referred: str = ""


def missing_versions(
    versions: Iterable[SchemaVersion], there: Iterable[SchemaVersion], *, keep: bool
) -> tuple[SchemaVersion, ...]:
    """Returns the versions that the destination's subject does not have.

    `keep`: they have the numbers of the source there.
    """
    if keep:
        numbers = {version.number for version in there}
        return tuple(version for version in versions if version.number not in numbers)
    existing = {(version.fingerprint, version.referred) for version in there}
    new = {(version.fingerprint, version.referred): version for version in versions}
    return tuple(version for schema, version in new.items() if schema not in existing)


def with_referred(subjects: Mapping[str, Collection[SchemaVersion]]) -> dict[str, tuple[SchemaVersion, ...]]:
    """Returns all versions of a registry, each with what stands for the schemas that it refers to."""
    places = {(name, version.number): version for name, listed in subjects.items() for version in listed}
    fingerprints: dict[tuple[str, int], str] = {}

    def referred(version: SchemaVersion, level: int) -> str:
        if not version.references or level > _MOST_LEVELS:
            return ""
        digest = hashlib.sha256()
        for place in version.references:
            if place in places and place not in fingerprints:
                fingerprints[place] = places[place].fingerprint + referred(places[place], level + 1)
            digest.update(f"{place[0]}\n{fingerprints.get(place, '')}\n".encode())
        return digest.hexdigest()

    return {
        name: tuple(
            replace(version, referred=referred(version, 0)) if version.references else version
            for version in listed
        )
        for name, listed in subjects.items()
    }


def with_referenced(names: Iterable[str], versions: Mapping[str, Collection[SchemaVersion]]) -> set[str]:
    """Returns those of the subjects that exist, and the ones to which their schemas refer."""
    subjects: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in subjects and name in versions:
            subjects.add(name)
            waiting += [to for version in versions[name] for to, _ in version.references]
    return subjects

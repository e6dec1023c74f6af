"""Versions of subjects, and which of them a registry lacks. Pure."""

from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct


class SchemaVersion(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A version of a subject. Schemas with the same `fingerprint` are the same.

    `references` are the subjects and versions that its schema refers to.
    """

    number: int
    id: int
    fingerprint: str
    references: tuple[tuple[str, int], ...] = ()


def missing_versions(
    versions: Iterable[SchemaVersion], there: Iterable[SchemaVersion], *, keep: bool
) -> tuple[SchemaVersion, ...]:
    """Returns the versions that the destination's subject does not have.

    `keep`: they have the numbers of the source there.
    """
    if keep:
        numbers = {version.number for version in there}
        return tuple(version for version in versions if version.number not in numbers)
    known = {version.fingerprint for version in there}
    new = {version.fingerprint: version for version in versions if version.fingerprint not in known}
    return tuple(new.values())


def with_referenced(names: Iterable[str], versions: Mapping[str, Collection[SchemaVersion]]) -> set[str]:
    """Returns those of the subjects that exist, and the ones to which their schemas refer."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found and name in versions:
            found.add(name)
            waiting += [to for version in versions[name] for to, _ in version.references]
    return found

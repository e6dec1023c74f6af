"""Reads the subjects of a schema registry: all versions, and the settings of those that a plan compares."""

from collections.abc import Mapping

from planner.model.observed import ClusterDetailsRequest, ObservedSubject
from runtime.contract.spec.schemas import RegistrySpec, SubjectNames
from runtime.schemas.client import NOT_FOUND, NotInRegistry, RegistryRefused, SchemaRegistry
from runtime.schemas.subjects import belongs_to
from runtime.schemas.versions import with_referenced, with_referred


async def read_subjects(spec: RegistrySpec, wanted: ClusterDetailsRequest) -> dict[str, ObservedSubject]:
    """Returns all subjects with their versions. Raises the errors of SchemaRegistry.

    Settings are read of the subjects of the wanted topics, of those that are named, and of those to which
    the schemas of these refer. Modes are read only where they are wanted.
    """
    registry = SchemaRegistry(spec)
    try:
        versions = with_referred(await registry.every_version())
        named = [name for name in versions if name in wanted.subjects or _is_of(name, wanted.schemas)]
        compared = sorted(with_referenced(named, versions))
        levels = await registry.own_compatibilities(compared)
        modes = await registry.own_modes(compared if wanted.subject_modes else [])
    finally:
        registry.close()
    settings = dict(zip(compared, zip(levels, modes or [""] * len(compared), strict=True), strict=True))
    return {
        subject: ObservedSubject(listed, *settings.get(subject, ("", "")))
        for subject, listed in versions.items()
    }


async def imports_schemas(spec: RegistrySpec) -> bool:
    """Returns whether a registry has modes, and so one for importing. Raises the errors of SchemaRegistry."""
    registry = SchemaRegistry(spec)
    try:
        await registry.mode()
    except NotInRegistry:
        return False
    except RegistryRefused as refused:
        if refused.code != NOT_FOUND:
            raise
        return False
    finally:
        registry.close()
    return True


def _is_of(subject: str, topics: Mapping[str, SubjectNames]) -> bool:
    """Returns whether the subject is one of these topics': a topic's name ends before one of its dashes."""
    ends = (at for at, letter in enumerate(subject) if letter == "-")
    return any(
        (names := topics.get(subject[:end])) is not None and belongs_to(subject, subject[:end], names)
        for end in ends
    )

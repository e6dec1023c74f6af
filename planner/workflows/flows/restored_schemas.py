"""The schemas that a restore registers at the cluster's registry, and what stands in their way. Pure."""

from collections.abc import Iterator, Mapping

from planner.graph.messages import few
from planner.graph.schemas import KeptIds
from planner.model.diagnostic import Diagnostic, error, warning
from planner.model.observed import SCHEMAS, ObservedCluster, ObservedSubject
from planner.model.restore import RestoredSubject
from runtime.schemas.client import shown
from runtime.schemas.stored import BackedUpSchemas
from runtime.schemas.subjects import at_destination, subjects_of_topic
from runtime.schemas.versions import missing_versions, with_referenced, with_referred

_CODE = "restore"


class RestoredSchemas:
    """The subjects of a backup's restored topics, and those that they refer to, with their names there.

    `topics` has the new name of each topic. `synced`: the topology says that the flow keeps schemas.
    `translated`: they get the ids of the cluster's registry.
    """

    def __init__(
        self,
        schemas: BackedUpSchemas,
        topics: Mapping[str, str],
        *,
        synced: bool = False,
        translated: bool = False,
    ) -> None:
        self._schemas = schemas
        self._translated = translated
        self._stored = with_referred(schemas.every_version())
        self._topics = topics
        self._synced = synced or bool(self._stored)
        ordered = sorted(self._stored)
        subjects = {topic: list(subjects_of_topic(ordered, topic, schemas.names)) for topic in topics}
        renamed = {
            subject: at_destination(subject, topic, topics[topic], schemas.names)
            for topic, names in subjects.items()
            for subject in names
        }
        if schemas.names == "record_name":  # no subject tells its topic
            self._names = {subject: subject for subject in ordered}
            self._without = [] if ordered else sorted(topics)
        else:
            self._names = {
                subject: renamed.get(subject, subject) for subject in with_referenced(renamed, self._stored)
            }
            self._without = sorted(topic for topic, names in subjects.items() if not names)

    def missing(self, live: ObservedCluster) -> Iterator[RestoredSubject]:
        """Yields the subjects with the versions that the cluster's registry lacks."""
        for subject, renamed in sorted(self._names.items()):
            there = live.subjects.get(renamed, ObservedSubject()).versions
            if missing := missing_versions(self._stored[subject], there, keep=not self._translated):
                level = "" if renamed in live.subjects else self._schemas.levels.get(subject, "")
                yield RestoredSubject(renamed, subject, missing, level)

    def diagnostics(self, live: ObservedCluster, *, registry: bool) -> Iterator[Diagnostic]:
        """Yields why schemas can't be restored. `registry`: the topology declares one for the cluster.

        Where they keep their ids, an id or a version that is another schema at the registry is an error.
        """
        if self._synced and self._without:
            yield warning(
                f"the flow keeps schemas, and the backup has none of {few(self._without)}",
                "if records of these topics have schemas, register them with their ids",
                code=_CODE,
            )
        if not self._names:
            return
        if not registry:
            severity = error if self._translated else warning
            yield severity(
                f"the backup has {len(self._names)} subjects of schemas, and {live.name} has no schema"
                " registry: consumers there can't decode records that need them",
                f"declare it under registries: {live.name}: {{url: …}}",
                code=_CODE,
            )
        elif SCHEMAS in live.unreadable:
            what = f"the schema registry of {live.name} can't be read: {live.unreadable[SCHEMAS]}"
            yield error(what, "restore once it answers", code=_CODE)
        elif not self._translated:
            yield from self._conflicts(live)

    def _conflicts(self, live: ObservedCluster) -> Iterator[Diagnostic]:
        kept = KeptIds(live)
        for subject, renamed in sorted(self._names.items()):
            for version in self._stored[subject]:
                here = f"{shown(subject)} version {version.number} in the backup"
                if what := kept.conflict(here, renamed, version):
                    yield error(
                        what,
                        "restore with --schema-ids translate, or into a registry without this schema",
                        code="schema-id-conflict",
                    )

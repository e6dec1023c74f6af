"""Brings the schemas of a flow's topics while the job runs, before records need them.

New subjects, new versions and changes of the compatibility follow within `follow.every`. The rules are those
of an apply: versions are registered in their order, the schemas that they refer to first, and none is changed
or deleted. The mode of a subject changes only where a version must be imported. The compatibility follows
only where neither a failback nor a flow in the other direction copies the topic: two flows would take turns.

A subject of `record_name` tells no topic: its schemas come with the first record that needs them.

Flows that sync at the same moment share one read of each registry. A large registry is read less often.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from functools import partial
from typing import NamedTuple

from runtime.contract.client.settings import ClientSettingsError
from runtime.contract.spec.route import Router
from runtime.driver.flows.flow import DriverFlow
from runtime.kafka.errors import ErrorCode, WireError
from runtime.kafka.timing import until_next
from runtime.schemas.client import (
    NotInRegistry,
    RegistryRefused,
    RegistryUnavailable,
    SchemaRegistry,
    shown,
)
from runtime.schemas.copier import SchemaCopier, SchemaNotCopied
from runtime.schemas.subjects import at_destination, subjects_of_topic
from runtime.schemas.versions import SchemaVersion, missing_versions
from runtime.slot.log import log_event

_NOTE = "schemas"
_PAUSE_TIMES, _MAX_PAUSE_S = 5, 300.0  # of the time that the listings took
_LEVELS_AT_ONCE = 100  # subjects whose compatibility one pass compares, beside those with new versions
_MOST_UNANSWERED = 3
_SHOWN = 5
_FAILURES = (RegistryUnavailable, RegistryRefused, NotInRegistry)


class _Pair(NamedTuple):
    """A subject of the source, its name at the destination, and whether its compatibility follows."""

    subject: str
    renamed: str
    with_level: bool


class SubjectSync:
    """Brings the schemas of one flow. What fails is put into `notes` and retried.

    `actions` counts the versions that it registered (`schemas`), and the subjects that failed in a pass
    (`schema_failures`), by flow.
    """

    def __init__(
        self,
        flow: DriverFlow,
        router: Router,
        notes: MutableMapping[str, str],
        actions: Counter[tuple[str, str]],
    ) -> None:
        self._flow = flow
        self._router = router
        self._notes = notes
        self._actions = actions
        self._turn = 0
        self._took_s = 0.0

    async def run(self) -> None:
        """Brings schemas at the interval of `follow`. Raises DriverFenced."""
        spec = self._flow.spec
        every = spec.follow_every_ms
        if every is None or not spec.schemas.sync or spec.schemas.subjects == "record_name":
            return
        while True:
            try:
                failed = await self._sync()
                self._notes.pop(_NOTE, None)
                if failed:
                    more = f" and {len(failed) - _SHOWN} more" if len(failed) > _SHOWN else ""
                    self._notes[_NOTE] = "; ".join(failed[:_SHOWN]) + more
            except (*_FAILURES, WireError, ClientSettingsError) as error:
                self._notes[_NOTE] = str(error)
                self._actions[spec.name, "schema_failures"] += 1
            rest_s = min(_PAUSE_TIMES * self._took_s, _MAX_PAUSE_S)
            await asyncio.sleep(until_next(max(every / 1000, rest_s)))

    async def _sync(self) -> list[str]:
        """Brings what is missing, once. Returns what failed, by subject."""
        spec, clusters = self._flow.spec, self._flow.shared.clusters
        listed = await clusters.listing(spec.source)
        topics = self._flow.selected(name for name, topic in listed.items() if topic.error is ErrorCode.NONE)
        loop = asyncio.get_running_loop()
        began = loop.time()
        here, there = await asyncio.gather(
            clusters.subjects.read(spec.source), clusters.subjects.read(spec.destination)
        )
        self._took_s = loop.time() - began
        pairs = list(self._pairs(topics, sorted(here)))
        keep = spec.schemas.ids == "keep"
        missing = {
            pair: missing_versions(here[pair.subject], there.get(pair.renamed, ()), keep=keep)
            for pair in pairs
        }
        source, destination = map(clusters.schema_registry, (spec.source, spec.destination))
        copier = SchemaCopier(source, destination, spec.schemas)
        failed: list[str] = []
        unanswered = 0  # subjects in a row
        for pair in self._due([pair for pair in pairs if pair.with_level], missing):
            try:
                level = await self._new_level(pair, source, destination)
                await copier.copy_subject(
                    pair.subject,
                    missing[pair],
                    pair.renamed,
                    level,
                    ensure=self._flow.shared.leadership.ensure,
                    registered=partial(self._registered, pair),
                )
                unanswered = 0
            except (NotInRegistry, RegistryRefused, RegistryUnavailable, SchemaNotCopied) as error:
                failed.append(f"{shown(pair.renamed)}: {error}")
                self._actions[spec.name, "schema_failures"] += 1
                unanswered = unanswered + 1 if isinstance(error, RegistryUnavailable) else 0
            if unanswered == _MOST_UNANSWERED:  # the registry, and not a subject of it, does not answer
                break
        return failed

    def _registered(self, pair: _Pair, version: SchemaVersion) -> None:
        spec = self._flow.spec
        self._actions[spec.name, "schemas"] += 1
        log_event(
            "schema_registered",
            key=spec.name,
            flow=spec.name,
            subject=shown(pair.renamed),
            version=version.number,
        )

    def _pairs(self, topics: Mapping[str, str], subjects: Sequence[str]) -> Iterator[_Pair]:
        """Yields the subjects of the topics that the flow copies now."""
        spec = self._flow.spec
        for topic, renamed in topics.items():
            names = list(subjects_of_topic(subjects, topic, spec.schemas.subjects))
            with_level = bool(names) and spec.reverse_of is None and not self._router.is_one(spec.name, topic)
            for name in names:
                yield _Pair(name, at_destination(name, topic, renamed, spec.schemas.subjects), with_level)

    def _due(
        self, with_level: Sequence[_Pair], missing: Mapping[_Pair, Sequence[SchemaVersion]]
    ) -> list[_Pair]:
        """Returns the subjects with missing versions, and the next ones whose compatibility is compared."""
        if self._turn >= len(with_level):
            self._turn = 0
        in_turn = with_level[self._turn : self._turn + _LEVELS_AT_ONCE]
        self._turn += _LEVELS_AT_ONCE
        return list(dict.fromkeys([*(pair for pair, versions in missing.items() if versions), *in_turn]))

    async def _new_level(self, pair: _Pair, source: SchemaRegistry, destination: SchemaRegistry) -> str:
        """Returns the compatibility of the source's subject, if the destination's has another one."""
        (wanted,) = await source.own_compatibilities([pair.subject]) if pair.with_level else [""]
        there = await destination.own_compatibilities([pair.renamed]) if wanted else [wanted]
        return wanted if there != [wanted] else ""

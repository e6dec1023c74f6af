"""The snapshots of a flow in an endpoint's folder: dated files beside the manifest, each of them whole.

A snapshot is written whole, and only where there is none of its name. Few of them stay: the newest ones, and
the last one of each day. All methods block: the driver calls them in a thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

from msgspec.structs import replace

from runtime.contract.client.stores import Setting
from runtime.contract.records import manifest
from runtime.contract.records.manifest import Snapshot, SnapshotTopic, UnreadableCommit
from runtime.contract.records.record_values import MAX_TEXT_BYTES
from runtime.contract.spec.files import OWN_FOLDER
from runtime.files.manifest import ManifestProblem, as_unavailable
from runtime.files.open_store import opened

KEPT_NEWEST: Final = 48
KEPT_DAYS: Final = 90
_CLOCKS_DIFFER_MS: Final = 60_000  # of two machines on which the driver may run
_FORM: Final = "%Y%m%dT%H%M%S"


def readable(snapshot: Snapshot) -> Snapshot:
    """Returns the snapshot, without the offsets of groups where it could not be read again with them."""
    size = len(manifest.encode(snapshot))
    if size <= MAX_TEXT_BYTES:
        return snapshot
    why = (
        f"{len(snapshot.offsets):,} offsets make it {size:,} bytes long, at most {MAX_TEXT_BYTES:,} are read"
    )
    return replace(snapshot, offsets=[], unread={**snapshot.unread, "groups": why})


class SnapshotFolder:
    """The snapshots of one flow below the endpoint's folder."""

    def __init__(self, endpoint: str, flow: str, client: Mapping[str, Setting] | None = None) -> None:
        self.store = opened(endpoint, client)
        self._flow = flow
        self._folder = f"{OWN_FOLDER}/{flow}/snapshots"
        self._read: dict[int, Snapshot] = {}  # those that `describing` has read

    def times(self) -> list[int]:
        """Returns the times of all snapshots in ms, in order. Raises EndpointUnavailable."""
        with as_unavailable(self.store):
            names = self.store.names(self._folder)
        return sorted(at_ms for name in names if (at_ms := _time_of(name)) is not None)

    def read(self, at_ms: int) -> Snapshot:
        """Returns the snapshot of a time. Raises ManifestProblem, EndpointUnavailable."""
        path = self._path(at_ms)
        with as_unavailable(self.store):
            text = self.store.read(f"{self._folder}/{_name(at_ms)}")
        try:
            snapshot = manifest.decode_snapshot(text)
        except UnreadableCommit as error:
            raise ManifestProblem(
                f"{path} can't be read: {error}; restore it from a copy, or remove it"
            ) from error
        if (snapshot.at_ms, snapshot.flow) != (at_ms, self._flow):
            raise ManifestProblem(
                f"{path} holds the snapshot of another time or flow: restore it from a copy, or remove it"
            )
        return snapshot

    def describing(
        self, topic: str, topic_id: str, until_ms: int | None = None
    ) -> tuple[Snapshot, SnapshotTopic] | None:
        """Returns the newest snapshot that holds a topic, and what it says of it; None where none does.

        With `until_ms` it is not later than that, unless only later ones hold the topic. Raises
        ManifestProblem, EndpointUnavailable.
        """
        times = self.times()
        before = [at_ms for at_ms in times if until_ms is None or at_ms <= until_ms]
        for at_ms in (*reversed(before), *times[len(before) :]):
            if at_ms not in self._read:
                self._read[at_ms] = self.read(at_ms)
            for snapshot_topic in self._read[at_ms].topics:
                if (snapshot_topic.name, snapshot_topic.topic_id) == (topic, topic_id):
                    return self._read[at_ms], snapshot_topic
        return None

    def add(self, snapshot: Snapshot) -> bool:
        """Writes a snapshot unless it says the same as the newest one. Returns whether it was written.

        Where the newest one has a later date, because a clock was wrong, this one is dated one millisecond
        after it: the order of snapshots is the order in which they were taken. Raises ManifestTaken,
        EndpointUnavailable.
        """
        times = self.times()
        with suppress(ManifestProblem):  # one that can't be read says something else
            if times and _facts_of(self.read(times[-1])) == _facts_of(snapshot):
                return False
        if times and times[-1] > snapshot.at_ms:
            snapshot = replace(snapshot, at_ms=times[-1] + 1)
        with as_unavailable(self.store):
            self.store.add(f"{self._folder}/{_name(snapshot.at_ms)}", manifest.encode(snapshot))
            old = superfluous([*times, snapshot.at_ms])
            self.store.remove(f"{self._folder}/{_name(at_ms)}" for at_ms in old)
        return True

    def misdated(self, now_ms: int) -> str | None:
        """Returns the newest snapshot if its date is in the future, None otherwise. Raises
        EndpointUnavailable.
        """
        times = self.times()
        ahead = bool(times) and times[-1] > now_ms + _CLOCKS_DIFFER_MS
        return self._path(times[-1]) if ahead else None

    def _path(self, at_ms: int) -> str:
        """Returns where a snapshot is, for people."""
        return self.store.path(f"{self._folder}/{_name(at_ms)}")


def _facts_of(snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, at_ms=0, generation=0)


def superfluous(times: Iterable[int]) -> list[int]:
    """Returns the times of the snapshots that do not stay.

    The newest ones stay, and the last one of each of the newest days that have any.
    """
    ordered = sorted(times)
    last_of_day = {datetime.fromtimestamp(at_ms / 1000, UTC).date(): at_ms for at_ms in ordered}
    days = sorted(last_of_day)[-KEPT_DAYS:]
    stays = {*ordered[-KEPT_NEWEST:], *(last_of_day[day] for day in days)}
    return [at_ms for at_ms in ordered if at_ms not in stays]


def _name(at_ms: int) -> str:
    """`20260131T235959.123Z.json`"""
    seconds, rest = divmod(at_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC).strftime(_FORM)}.{rest:03d}Z.json"


def _time_of(name: str) -> int | None:
    text, dot, rest = name.removesuffix("Z.json").partition(".")
    if not dot or len(rest) != 3 or not rest.isdecimal() or not name.endswith("Z.json"):
        return None
    try:
        return int(datetime.strptime(text, _FORM).replace(tzinfo=UTC).timestamp()) * 1000 + int(rest)
    except ValueError:
        return None

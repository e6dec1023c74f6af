"""Reads a backup in raw files as far as a restore asks for it: which topics, up to which offsets."""

from datetime import UTC, datetime
from pathlib import Path

from planner.graph.jobs import client_settings
from planner.graph.messages import few
from planner.model.diagnostic import ExitCode, Failure, error
from planner.model.topology import FileEndpoint
from runtime.batch import BatchFailure
from runtime.contract.spec.files import plain_folder
from runtime.contract.spec.selection import regex
from runtime.files.backup import Backup, DamagedFile, cut, flows_in, read_backup
from runtime.files.manifest import EndpointUnavailable, ManifestFolder, ManifestProblem
from runtime.files.open_store import opened
from runtime.files.schemas import SchemaFolder
from runtime.files.snapshots import SnapshotFolder
from runtime.schemas.stored import BackedUpSchemas

_REACH = "make the store reachable from this machine, then run this again"
_MOST_MS = 253_402_300_800_000  # the year 10000
_DAMAGED = "restore the folder of the endpoint from a copy; nothing was changed"


class RequestedBackup:
    """What the folder of an endpoint holds of the topics that are asked for."""

    def __init__(self, endpoint: FileEndpoint, flow: str | None, topics: str, until_ms: int | None) -> None:
        self.endpoint = endpoint
        self.client = client_settings(endpoint, Path.cwd())
        if endpoint.format != "raw":
            raise refused(
                f"the endpoint {endpoint.name} holds {endpoint.format} files, and only raw files are a"
                " backup",
                "name an endpoint of the format raw",
            )
        try:
            self.backup = self._backup(flow)
            snapshots = SnapshotFolder(endpoint.folder, self.backup.flow, self.client)
            wanted = regex(topics)
            lineages = self.backup.topics(until_ms)
            self.topics = {name: lineage for name, lineage in lineages.items() if wanted.matches(name)}
            manifests = ManifestFolder(endpoint.folder, self.backup.flow, self.client)
            self.cuts = {
                name: {
                    number: cut(manifests, lineage, number, until_ms) for number in sorted(lineage.positions)
                }
                for name, lineage in self.topics.items()
            }
            folder = SchemaFolder(endpoint.folder, self.backup.flow, self.client)
            self.schemas = BackedUpSchemas(endpoint.name, folder.read())
            self.known = {
                name: snapshots.describing(name, lineage.topic_id, until_ms)
                for name, lineage in self.topics.items()
            }
        except EndpointUnavailable as problem:
            raise self._unreadable(
                str(problem), "mount the folder on this machine, then run this again"
            ) from None
        except (ManifestProblem, DamagedFile, BatchFailure) as problem:
            raise refused(f"the backup {endpoint.name} can't be trusted: {problem}", _DAMAGED) from None
        except OSError as problem:
            why = f"{problem.filename}: {problem.strerror}"
            raise self._unreadable(why, "give this user the right to read the folder") from None
        self._check(topics, until_ms)

    def _unreadable(self, why: str, hint: str) -> Failure:
        return Failure(error(why, _REACH if self.endpoint.in_store else hint))

    def _backup(self, flow: str | None) -> Backup:
        folder = plain_folder(self.endpoint.folder)
        try:
            flows = flows_in(opened(folder, self.client))
        except FileNotFoundError:
            name = self.endpoint.name
            raise EndpointUnavailable(f"the folder {folder} of the endpoint {name} is not there") from None
        if flow is not None and flow not in flows:
            what = f"{folder} holds no backup of a flow {flow}"
            raise Failure(error(what, f"its flows: {few(flows) or 'none'}"))
        if not flows:
            raise Failure(error(f"{folder} holds no backup", "a flow into this endpoint writes one"))
        if flow is None and len(flows) > 1:
            what = f"{folder} holds the backups of several flows: {few(flows)}"
            raise Failure(error(what, "name one of them with --flow"))
        backup = read_backup(self.endpoint.folder, flow or flows[0], client=self.client)
        if backup.format != "raw":
            raise refused(
                f"flow {backup.flow} has written {backup.format} files, and only raw files are a backup",
                "name another flow with --flow",
            )
        return backup

    def _check(self, topics: str, until_ms: int | None) -> None:
        """Failure where nothing would be restored."""
        if not self.topics:
            names = few(sorted(self.backup.lineages)) or "none"
            what = f"the backup {self.endpoint.name} holds no topic that matches {topics}"
            raise Failure(error(what, f"its topics: {names}"))
        if until_ms is not None and not any(
            cut_.records for cuts in self.cuts.values() for cut_ in cuts.values()
        ):
            first = min(
                (
                    file.first_timestamp
                    for lineage in self.topics.values()
                    for files in lineage.files.values()
                    for file in files
                ),
                default=-1,
            )
            hint = f"its first record is of {time_text(first)}" if first >= 0 else "it holds no records yet"
            what = f"the backup {self.endpoint.name} holds no record up to {time_text(until_ms)}"
            raise Failure(error(what, hint))


def time_text(at_ms: int) -> str:
    """`2026-01-31T23:59:59.123Z`; the number itself where no calendar has it: producers choose timestamps."""
    if not 0 <= at_ms < _MOST_MS:
        return f"{at_ms} ms"
    text = datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{at_ms % 1000:03d}Z" if at_ms % 1000 else f"{text}Z"


def refused(what: str, hint: str) -> Failure:
    return Failure(error(what, hint, code="restore", exit=ExitCode.REFUSED))

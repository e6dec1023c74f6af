"""Defines the file endpoints of a job: the folder that a flow writes to, or the folder whose files it reads.

The folder may be a prefix in an object store: `s3a://bucket/prefix`.

A layout such as `{topic}/date={date}/` names the folder of a record below the endpoint's folder.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, ClassVar, Final, Literal

from msgspec import Meta

from runtime.contract.client.stores import (
    SECRETS,
    Setting,
    address_problem,
    client_problem,
    is_store,
    reading_problem,
    store_address,
)
from runtime.contract.spec.shapes import (
    Key,
    Quantity,
    QuantityShape,
    RecordName,
    SettingsShape,
    SpecStruct,
    TextShape,
)

Format = Literal["json", "parquet", "raw"]
LineFormat = Literal["text", "json"]
SourceFormat = Literal["text", "json", "parquet"]

ROUND_MS: Final = 60_000  # how often a flow into files begins a round
LOOK_MS: Final = 1_000  # how often a flow from files reads the folder
OWN_FOLDER: Final = "_repl"  # holds the manifests and the files that are not committed yet
STAGING_FOLDER: Final = "staging"  # of a flow's own folder: files that no commit names yet
EXTENSIONS: Final = {"json": "jsonl", "parquet": "parquet", "raw": "log"}
SUPPORTED: Final = (
    "supported are a bucket of a store that speaks S3 (s3a://bucket/prefix), of Google Cloud Storage"
    " (gs://bucket/prefix) or of Azure (abfs://container@account.dfs.core.windows.net/prefix), and a folder"
    " on every machine of the job (/mnt/archive)"
)
_BY_TIME: Final = ("date", "hour")
_PLACEHOLDERS: Final = ("topic", "partition", *_BY_TIME)
_PART: Final = re.compile(r"\{(\w*)\}")
_LITERAL: Final = re.compile(r"[A-Za-z0-9._=+@-]*")
_MOST_BESIDE_TOPIC: Final = 6  # a name has at most 255 bytes, and a topic's at most 249
_MOST_MS: Final = 253_402_300_800_000  # the year 10000
_DAY_MS: Final = 86_400_000
_MOST_RETENTION_MS: Final = 30 * _DAY_MS
UNKNOWN_TIME: Final = "unknown"
_MOST_NAME: Final = 4_096  # bytes of a path
_MOST_PART: Final = 255  # bytes of a name in a folder
_SHOWN: Final = 100  # characters of a name


_COMPACTION: Final = QuantityShape(Quantity.DURATION, 1_000, _MOST_RETENTION_MS)
_SIZE: Final = TextShape("a size as Spark writes it", r"\d+[kmgtKMGT][bB]?", "write it as 128m or 1g")


class CompactionSpec(SpecStruct, frozen=True, kw_only=True):
    """How small files of one partition in one folder are merged into larger ones."""

    record: ClassVar = RecordName("compact", "the merge of small files")

    every_ms: Annotated[
        Annotated[int, Meta(ge=100, le=_MOST_RETENTION_MS)],
        Key("How often small files are merged.", _COMPACTION, example="1h"),
    ] = 3_600_000
    below_bytes: Annotated[
        Annotated[int, Meta(ge=1 << 10, le=1 << 40)],
        Key(
            "Files smaller than this are merged, up to the `size` of a file.",
            _SIZE,
            name="below",
            default="16m",
            example="16m",
            converter="size",
        ),
    ] = 16 << 20
    retention_ms: Annotated[
        Annotated[int, Meta(ge=100, le=_MOST_RETENTION_MS)],
        Key(
            "How long the files that a merged one replaces can still be read, under `_repl`.",
            _COMPACTION,
            example="1d",
        ),
    ] = 86_400_000


class EndpointSpec(SpecStruct, frozen=True, kw_only=True):
    """Where the files of a flow are, and what they are like.

    The folder has one path on every machine that runs the job, or is the prefix of a bucket, which `client`
    says how to reach.
    """

    record: ClassVar = RecordName("endpoint", "an endpoint")

    folder: Annotated[
        Annotated[str, Meta(max_length=4_096)],
        Key(
            "The absolute path of a folder, which must exist on every machine of the job, or the address of"
            " an object store, whose bucket must exist: `s3a://bucket/prefix`, `gs://bucket/prefix` or"
            " `abfs://container@account.dfs.core.windows.net/prefix`.",
            TextShape("the path of a folder, or s3a://bucket/prefix"),
            name="file",
            example="/data/lake",
        ),
    ]
    format: Annotated[
        Literal["json", "parquet", "raw", "text"],
        Key(
            "`json` is a line for each record, `raw` holds record batches byte for byte, with offsets. Lines"
            " of `text` and `json` and rows of `parquet` can be read.",
            example="parquet",
        ),
    ] = "parquet"
    recursive: Annotated[
        bool,
        Key(
            "Whether files in folders below the endpoint's folder are read, too. Only flows from files have"
            " it.",
            example="true",
        ),
    ] = False
    layout: Annotated[
        Annotated[str, Meta(max_length=1_024)],
        Key(
            "The folder of a file, with `{topic}` once, and `{partition}`, `{date}` and `{hour}` (UTC)."
            " Files of the format raw have no dates.",
            TextShape("a layout"),
            default_doc="`{topic}/`",
            example='"{topic}/date={date}/"',
        ),
    ] = "{topic}/"
    size_bytes: Annotated[
        Annotated[int, Meta(ge=1 << 16, le=1 << 40)],
        Key(
            "A file that has reached this size is closed; all are closed at the end of each round.",
            _SIZE,
            name="size",
            default="128m",
            example="256m",
            converter="size",
        ),
    ] = 128 << 20
    snapshots_ms: Annotated[
        Annotated[int, Meta(ge=100, le=_DAY_MS)],
        Key(
            "How often a snapshot of topic configs, ACLs and group offsets is kept. Only the format raw"
            " has them.",
            QuantityShape(Quantity.DURATION, 1_000, _DAY_MS),
            example="10m",
        ),
    ] = 600_000
    compact: Annotated[
        CompactionSpec | None,
        Key(
            "Merges small files, a pass after a round. A plain listing of the folder may show a record twice"
            " for a moment.",
            example="{every: 1h, below: 16m}",
            unset=True,
        ),
    ] = None
    client: Annotated[
        Mapping[str, Setting],
        Key(
            "How an object store is reached. S3: `region`, `endpoint` (AWS without it), `access.key`,"
            " `secret.key`, `session.token`. Google: `endpoint`, `service.account.key`. Azure: `endpoint`,"
            " `account.key` or `sas.token`. All: `ssl.ca.location`. Secrets are `{env: VARIABLE}` or"
            " `{file: path}`. Without keys, the machine's own credentials are used.",
            SettingsShape(store=True, expected="a map of settings"),
            example="{region: eu-central-1, access.key: {env: S3_KEY}, secret.key: {env: S3_SECRET}}",
        ),
    ] = {}

    @property
    def in_store(self) -> bool:
        """Whether the files are in an object store."""
        return is_store(self.folder)


class FilesSpec(EndpointSpec, frozen=True, kw_only=True):
    """The endpoint that a flow writes to: its name, and how often a round of files begins."""

    endpoint: str
    format: Format
    every_ms: Annotated[int, Meta(ge=100, le=_DAY_MS)] = ROUND_MS


class LinesSpec(EndpointSpec, frozen=True, kw_only=True):
    """The endpoint that a flow reads: its name, and how often the folder is read again.

    Each complete line or row becomes a record of `topic`; a line of the format `json` must hold a JSON value.
    """

    endpoint: str
    format: SourceFormat
    topic: Annotated[str, Meta(pattern=r"^[a-zA-Z0-9._-]{1,249}$")]
    every_ms: Annotated[int, Meta(ge=100, le=_DAY_MS)] = LOOK_MS

    @property
    def unit(self) -> Literal["bytes", "rows"]:
        """What positions in a file count."""
        return "rows" if self.format == "parquet" else "bytes"


def name_problem(name: str) -> str | None:
    """Returns why a name could lead out of the folder or prefix that it is relative to, None where it can't.

    Any writer of the folder may have written it, in a manifest or as the name of a file. So a name is checked
    where it is decoded and again before each file operation.
    """
    shown = repr(name[:_SHOWN])
    parts = name.split("/")
    if not all(parts):
        return f"{shown} is absolute, or has an empty part"
    if "." in parts or ".." in parts:
        return f"{shown} has a part that is . or .."
    if "\\" in name or ":" in name or not name.isprintable():
        return f"{shown} has a backslash, a colon or a character that can't be printed"
    if len(name.encode()) > _MOST_NAME or any(len(part.encode()) > _MOST_PART for part in parts):
        return f"{shown} is too long"
    return None


def data_name_problem(path: str) -> str | None:
    """Returns why the path of a data file is not one beside the manifests, None where it is."""
    if _is_own(path):
        return f"{path[:_SHOWN]!r} is in {OWN_FOLDER}, which holds no data files"
    return name_problem(path)


def staged_name_problem(staged: str) -> str | None:
    """Returns why the name of a staged file is not one in the folder of staged files, None where it is."""
    if staged.split("/")[0] != STAGING_FOLDER:
        return f"{staged[:_SHOWN]!r} is not in {STAGING_FOLDER}"
    return name_problem(staged)


def folder_problem(folder: str) -> tuple[str, str] | None:
    """Returns what is wrong with an endpoint's folder, and the way out."""
    if is_store(folder):
        return address_problem(folder)
    scheme, mark, _ = folder.partition("://")
    if mark:
        return (
            f"{scheme}:// is not supported",
            SUPPORTED,
        )
    if not folder.startswith("/"):
        return (
            f"{folder} is no absolute path",
            "a job runs in another folder: write the whole path, /data/lake",
        )
    if any(part in (".", "..") for part in folder.split("/")) or "\0" in folder or folder.strip("/") == "":
        return f"{folder} does not name a folder of its own", "write the plain path, such as /data/lake"
    return None


def store_problem(files: EndpointSpec) -> str | None:
    """Returns what is wrong with the settings of the store that a flow writes to or reads."""
    if not is_store(files.folder):
        return f"{files.folder} is a folder, and has no client" if files.client else None
    if (problem := client_problem(files.folder, files.client)) is not None:
        return f"{problem[0]} {problem[1]}"
    written = next((key for key in sorted(SECRETS) if isinstance(files.client.get(key), str)), None)
    if written:
        return f"{written} is written out, and a job spec must not hold a secret"
    unreadable = reading_problem(files.folder) if isinstance(files, LinesSpec) else None
    return unreadable[0] if unreadable else None


def plain_folder(folder: str) -> str:
    """Returns the folder without a trailing slash; the address of a store in its one form."""
    return str(store_address(folder)) if is_store(folder) else folder.rstrip("/")


def layout_problem(layout: str, form: Format) -> tuple[str, str] | None:
    """Returns what is wrong with a layout, and the way out. A layout without one stays inside the folder."""
    hint = "write it as {topic}/ or {topic}/date={date}/"
    folders = layout.removesuffix("/").split("/")
    if layout.startswith("/") or not all(folders):
        return f'the layout "{layout}" is no relative path', hint
    for name in folders:
        if unknown := [part for part in _PART.findall(name) if part not in _PLACEHOLDERS]:
            listed = ", ".join(f"{{{part}}}" for part in _PLACEHOLDERS)
            return f'the layout "{layout}" has {{{unknown[0]}}}', f"known are {listed}"
        literal = _PART.sub("", name)
        if not _LITERAL.fullmatch(literal):
            return f'the layout "{layout}" has a sign that is not allowed in names', hint
        if name.startswith((".", "_")):
            return (
                f'"{name}" in the layout "{layout}" begins with {name[0]}: readers ignore such names',
                hint,
            )
        if "{topic}" in name and (len(literal) > _MOST_BESIDE_TOPIC or len(_PART.findall(name)) > 1):
            return f'"{name}" in the layout "{layout}" is too long for a long topic name', hint
    if layout.count("{topic}") != 1:
        return f'the layout "{layout}" does not name {{topic}} once', hint
    if form == "raw" and (named := next((part for part in _BY_TIME if f"{{{part}}}" in layout), None)):
        return (
            f'the layout "{layout}" has {{{named}}}, and raw files hold whole batches, which may span it',
            "write {topic}/, or choose the format json or parquet",
        )
    return None


def by_time(layout: str) -> bool:
    """Returns whether records of one partition lie in several folders, by their timestamps."""
    return any(f"{{{part}}}" in layout for part in _BY_TIME)


def folder_of(layout: str, topic: str, partition: int, timestamp_ms: int) -> str:
    """Returns the folder of a record, relative to the endpoint's. Dates and hours are those of UTC."""
    at = datetime.fromtimestamp(timestamp_ms / 1000, UTC) if 0 <= timestamp_ms < _MOST_MS else None
    return layout.removesuffix("/").format(
        topic=topic,
        partition=partition,
        date=f"{at:%Y-%m-%d}" if at else UNKNOWN_TIME,
        hour=f"{at:%H}" if at else UNKNOWN_TIME,
    )


def in_own_folder(layout: str, topic: str) -> bool:
    """Returns whether the files of a topic would be among the manifests: a topic may be named `_repl`."""
    return _is_own(folder_of(layout, topic, 0, 0))


def _is_own(path: str) -> bool:
    """Returns whether a path is among the manifests, also in a folder that ignores the case of names."""
    return path.split("/")[0].lower() == OWN_FOLDER


def file_name(
    flow: str, topic_id: str, partition: int, first: int, form: Format, merged_by: int | None = None
) -> str:
    """Returns the name of a file: another lineage, partition or first offset is another name.

    `merged_by` is the number of the commit that puts a merged file in the place of others.
    """
    merged = "" if merged_by is None else f".m{merged_by}"
    return f"{flow}-{partition:05d}-{first:020d}-{topic_id[:8]}{merged}.{EXTENSIONS[form]}"

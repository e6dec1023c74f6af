"""Explains why a side of a piece could not be read completely."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from runtime.audit.partition_logs import OpenTransactionTimeout, RecordsExpired
from runtime.audit.verify.file_lines import UnreadableFile
from runtime.audit.verify.pieces import VerifiedPiece
from runtime.batch import BatchFailure
from runtime.files.manifest import EndpointUnavailable, ManifestProblem
from runtime.kafka.errors import WireError
from runtime.schemas.client import RegistryUnavailable

_UNREADABLE = (
    WireError,
    BatchFailure,
    OpenTransactionTimeout,
    ManifestProblem,
    EndpointUnavailable,
    RegistryUnavailable,
    UnreadableFile,
)


@contextmanager
def noted(result: VerifiedPiece, files: str = "") -> Iterator[None]:
    """Notes a failure of the block in the result. `files` is their place, where an error names no file."""
    try:
        yield
    except RecordsExpired as error:
        result.unread, result.passed = str(error), True
    except _UNREADABLE as error:
        result.unread = str(error)
    except OSError as error:
        result.unread = f"{error.filename or files}: {error.strerror or error}"

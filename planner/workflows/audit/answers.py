"""A question to clusters and their ledgers, asked here and now; what fails is told with its way out."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from planner.model.diagnostic import ExitCode, Failure, error
from runtime.audit.ledger import AuditFailure, UnexpectedClusterId

Answer = TypeVar("Answer")


def answered(question: Coroutine[Any, Any, Answer]) -> Answer:
    """Another cluster than the one that is meant is refused."""
    try:
        return asyncio.run(question)
    except AuditFailure as failure:
        code = ExitCode.REFUSED if isinstance(failure, UnexpectedClusterId) else ExitCode.ERROR
        raise Failure(error(str(failure), failure.way_out, exit=code)) from None

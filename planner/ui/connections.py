"""Bounds what a connection may take before it has sent a whole request: time, and a place.

A request needs no token before it is complete, so anybody who reaches the port could hold places with halves
of requests.
"""

import asyncio
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

KEEP_ALIVE_S: Final = 30


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """How long the parts of a request may take, from the first byte that is awaited, and how many connections
    there are at most. `idle_s` is how long a connection may wait for its next request.
    """

    head_s: float = 5.0
    body_s: float = 5.0
    idle_s: float = KEEP_ALIVE_S + 5.0
    connections: int = 640  # 500 streams, and pages


LIMITS: Final = ConnectionLimits()


class ConnectionPhase(Enum):
    """HEAD → BODY → ANSWERING → IDLE → HEAD → …; a request without a body skips BODY."""

    HEAD = "head"
    BODY = "body"
    ANSWERING = "answering"
    IDLE = "idle"


class BoundedConnection(H11Protocol):
    """An HTTP connection with deadlines. Of too many, the one that has waited longest makes room.

    A connection whose request is being answered, such as a stream of events, is never closed for another.
    """

    def __init__(self, limits: ConnectionLimits, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._limits = limits
        self._deadlines = {
            ConnectionPhase.HEAD: limits.head_s,
            ConnectionPhase.BODY: limits.body_s,
            ConnectionPhase.IDLE: limits.idle_s,
        }
        self._timer: asyncio.TimerHandle | None = None
        self.phase = ConnectionPhase.ANSWERING
        self.since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._enter(ConnectionPhase.HEAD)
        if len(self.connections) > self._limits.connections:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._follow()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._follow()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _follow(self) -> None:
        """Enters the phase that the connection is in now."""
        if self.conn.their_state is h11.SEND_BODY:
            phase = ConnectionPhase.BODY
        elif self.cycle is not None and not self.cycle.response_complete:
            phase = ConnectionPhase.ANSWERING
        else:
            phase = (
                ConnectionPhase.HEAD
                if self.cycle is None or self.conn.trailing_data[0]
                else ConnectionPhase.IDLE
            )
        if phase is not self.phase:
            self._enter(phase)

    def _enter(self, phase: ConnectionPhase) -> None:
        self._stop_timer()
        self.phase, self.since = phase, self.loop.time()
        if (deadline := self._deadlines.get(phase)) is not None:
            self._timer = self.loop.call_later(deadline, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _make_room(self) -> None:
        """Closes the connection that has waited longest for a request: this one, where no other waits."""
        waiting = [
            connection
            for connection in self.connections
            if isinstance(connection, BoundedConnection)
            and connection.phase is not ConnectionPhase.ANSWERING
            and not connection.transport.is_closing()
        ]
        min(waiting, key=lambda connection: connection.since).transport.abort()

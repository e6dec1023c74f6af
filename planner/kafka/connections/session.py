"""A session with one cluster: asks one broker, and another broker if that fails, within a timeout."""

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

from planner.kafka.connections import (
    BlockingConnection,
    Closed,
    LoopThread,
    NoAnswer,
    NoConnection,
    WireFailure,
)
from planner.kafka.connections.explain import why_no_tls
from planner.kafka.tokens import token_of
from runtime.contract.client.values import WireSettings
from runtime.kafka.connection import GrowingBuffers
from runtime.kafka.dial import Dialer
from runtime.kafka.errors import Unsupported

Answer = TypeVar("Answer")
Address = tuple[str, int]

# The share of the timeout that one of several brokers gets before another is tried.
_TIMEOUT_SHARE = 0.6
# A broker that is restarting refuses connections for a moment.
_ROUNDS = 3
_PAUSE_S = 0.25
# How much memory for answers is kept for the next answer.
_KEPT_BYTES = 8 << 20


class Session:
    """A session for one thread. It fails after `timeout_s` without an answer; each answer starts the time
    again.
    """

    def __init__(self, settings: WireSettings, timeout_s: float) -> None:
        self._settings = settings
        self._timeout_s = timeout_s
        self._known: list[Address] = list(dict.fromkeys(settings.bootstrap))
        self._dialer = _dialer(settings, timeout_s)
        self._loop = LoopThread("observe-connections")
        self._open: BlockingConnection | None = None
        self._deadline = 0.0
        self._closed = False

    def add_brokers(self, brokers: Iterable[Address]) -> None:
        """Adds addresses that the cluster returned. They are tried after those of the bootstrap."""
        self._known = list(dict.fromkeys((*self._settings.bootstrap, *brokers)))

    def connection(self) -> BlockingConnection:
        """Returns the open connection, or a new one to the first broker that accepts it."""
        if self._open is None:
            self._deadline = time.monotonic() + self._timeout_s
            self._open = self._connect()
        return self._open

    def dial(self, address: Address, timeout_s: float) -> BlockingConnection:
        """Returns the caller's own connection to this broker. `timeout_s` limits the connecting only."""
        dialled = self._connection(address, min(timeout_s, self._timeout_s)).open()
        dialled.set_timeout(self._timeout_s)
        return dialled

    def ask(self, question: Callable[[BlockingConnection], Answer]) -> Answer:
        """Returns the answer of the present broker, or of the next one if it fails."""
        self._deadline = time.monotonic() + self._timeout_s
        while True:
            if self._open is None:
                self._open = self._connect()
            try:
                return question(self._open)
            except (Closed, NoAnswer):
                self._drop_connection()
                if time.monotonic() >= self._deadline or self._closed:
                    raise

    def close(self) -> None:
        """Ends the session, also from another thread: pending calls fail."""
        self._closed = True
        self._loop.end()

    def _connection(self, address: Address, timeout_s: float) -> BlockingConnection:
        return BlockingConnection(self._loop, self._dialer, address, timeout_s)

    def _drop_connection(self) -> None:
        broken, self._open = self._open, None
        if broken is not None:
            # The next attempt starts with another broker.
            if broken.address in self._known:
                self._known.remove(broken.address)
                self._known.append(broken.address)
            broken.close()

    def _connect(self) -> BlockingConnection:
        last: WireFailure | None = None
        for attempt in range(_ROUNDS):
            for address in tuple(self._known):
                left = self._deadline - time.monotonic()
                if last is not None and (left <= 0 or self._closed):
                    raise last
                try:
                    return self._connection(address, self._attempt_timeout(left)).open()
                except (NoConnection, NoAnswer, Closed) as failure:
                    last = failure
            if attempt + 1 < _ROUNDS:
                time.sleep(_PAUSE_S)
        assert last is not None
        raise last

    def _attempt_timeout(self, left: float) -> float:
        share = 1.0 if len(self._known) == 1 else _TIMEOUT_SHARE
        return max(0.1, min(left, self._timeout_s * share))


def _dialer(settings: WireSettings, timeout_s: float) -> Dialer:
    try:
        return Dialer(
            settings,
            old_brokers=True,
            buffers=GrowingBuffers(_KEPT_BYTES),
            obtain_token=partial(token_of, timeout_s=timeout_s),
        )
    except Unsupported as wrong:
        raise why_no_tls(wrong) from None

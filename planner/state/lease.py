"""The lease of a cluster: one apply at a time, across machines.

Kafka does not fence admin requests, so the holder asks `lost()` before each one. Its clock continues during a
SIGSTOP and while a laptop is suspended: a holder that slept past its time stops before it sends.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

from confluent_kafka import KafkaException, Producer

from planner.kafka import ClusterEndpoint, explain, producer
from planner.kafka.log import append, read
from planner.model.diagnostic import Diagnostic, Failure, error
from planner.state.codec import decode_lease, encode_lease
from planner.state.lease_log import TTL_MS, LeaseEntry, LeaseHolder, LeaseState, LeaseVerb, fold
from runtime.contract.records.record_values import UnreadableValue
from runtime.contract.spec.naming import LEASE

_KEY = b"lease"
_ASK_AGAIN_SECONDS = 1.0
_MARGIN = 0.2


def _clock() -> float:
    """Returns seconds that continue while the process is stopped or the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def current(endpoint: ClusterEndpoint) -> LeaseState | None:
    """Returns the holder by the log. A holder that died a while ago is still returned."""
    return fold(_entries(endpoint))


def _entries(endpoint: ClusterEndpoint) -> list[LeaseEntry]:
    """Returns the lease's entries. Every reader skips the same unreadable records; they grant nothing."""
    found: list[LeaseEntry] = []
    for record in read(endpoint, LEASE):
        if record.value is not None:
            with suppress(UnreadableValue):
                found.append(decode_lease(record.value, record.at_ms))
    return found


class Lease:
    """The lease from `acquire` to `release`. A thread of its own renews it."""

    def __init__(self, endpoint: ClusterEndpoint, holder: LeaseHolder, ttl_ms: int = TTL_MS) -> None:
        self.cluster = endpoint.cluster
        self._endpoint = endpoint
        self._holder = holder
        self._ttl_ms = ttl_ms
        self._producer: Producer = producer(endpoint)
        self._renewed_at = 0.0
        self._renewed_ms = 0
        self._lost: str | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def acquire(self, timeout_seconds: float, waiting: Callable[[LeaseState], None]) -> "Lease":
        """Claims the lease until it is granted. `waiting` is called once for each other holder.

        Raises Failure after `timeout_seconds`.
        """
        deadline = _clock() + timeout_seconds
        told: str | None = None
        while True:
            held = self._claim()
            if held is None:
                continue  # the holder released it just after our claim was refused
            if held.holder.id == self._holder.id:
                self._thread = threading.Thread(
                    target=self._renew_on_time, name=f"lease-{self.cluster}", daemon=True
                )
                self._thread.start()
                return self
            if held.holder.id != told:
                told = held.holder.id
                waiting(held)
            if _clock() >= deadline:
                raise Failure(_refusal(self.cluster, held, timeout_seconds))
            self._stop.wait(min(_ASK_AGAIN_SECONDS, max(0.05, deadline - _clock())))

    def _claim(self) -> LeaseState | None:
        """Writes a claim and returns the holder after it: the log's order decides between two claims."""
        sent_at = _clock()
        try:
            claimed_ms = self._say(LeaseVerb.CLAIM, self._ttl_ms / 1000)
        except (KafkaException, TimeoutError) as failure:
            raise Failure(
                error(
                    f"the lease of {self.cluster} cannot be asked for: {explain(failure)}",
                    "the brokers must answer, and the principal must be allowed to write to " + LEASE,
                )
            ) from failure
        held = fold(_entries(self._endpoint))
        self._renewed_at, self._renewed_ms = sent_at, claimed_ms
        return held

    def _say(self, verb: LeaseVerb, seconds: float) -> int:
        value = encode_lease(verb, self._holder, self._ttl_ms)
        return append(self._producer, LEASE, [(_KEY, value)], seconds)[0]

    def _renew_on_time(self) -> None:
        every = self._ttl_ms / 1000 / 6
        while not self._stop.wait(every):
            sent_at = _clock()
            try:
                renewed_ms = self._say(LeaseVerb.RENEW, self._ttl_ms / 1000)
            except (KafkaException, TimeoutError):
                continue  # the next turn tries again; lost() knows when it is too late
            if renewed_ms - self._renewed_ms > self._ttl_ms:
                self._lost = (
                    f"the lease of {self.cluster} was not renewed in time, and somebody else may hold it"
                )
                return
            self._renewed_at, self._renewed_ms = sent_at, renewed_ms

    def lost(self) -> str | None:
        """Returns None while the lease is certainly held, otherwise why it is not. Ask before
        every request.
        """
        if self._lost is None:
            idle = _clock() - self._renewed_at
            if idle > self._ttl_ms / 1000 * (1 - _MARGIN):
                self._lost = (
                    f"the lease of {self.cluster} was last renewed {idle:.0f} s ago, "
                    f"and ends by itself after {self._ttl_ms // 1000} s"
                )
        return self._lost

    def release(self) -> None:
        """Releases the lease at once, unless it is lost already."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
            if self._lost is None:
                try:
                    self._say(LeaseVerb.RELEASE, 5.0)
                except (KafkaException, TimeoutError):
                    self._lost = "the cluster does not answer; the lease ends by itself"

    def __enter__(self) -> "Lease":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _refusal(cluster: str, held: LeaseState, seconds: float) -> Diagnostic:
    who = held.holder
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(held.since_ms / 1000))
    return error(
        f"{cluster} is being applied to by {who.user}@{who.host} (pid {who.pid}, topology {who.topology}, "
        f"since {since}); waited {seconds:.0f} s",
        "wait for it to end, or give a longer --lock-timeout; the lease of a dead apply ends by itself "
        f"within {held.ttl_ms // 1000} s",
    )

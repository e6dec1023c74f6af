"""A broker that breaks the protocol in one chosen way, over a real TCP socket.

It knows enough of Kafka to lead a client to the place where it misbehaves: ApiVersions, the SASL handshake,
SCRAM as RFC 5802 says, and a metadata answer. A `Fault` replaces one of them by what a hostile broker sends.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import struct
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

API_VERSIONS, METADATA, HANDSHAKE, AUTHENTICATE = 18, 3, 17, 36
PRODUCE, FETCH = 0, 1
ALTER_REASSIGNMENTS, DESCRIBE_QUOTAS, ALTER_QUOTAS = 45, 48, 49
VERSIONS = {
    PRODUCE: (3, 9),
    FETCH: (4, 13),
    METADATA: (0, 12),
    HANDSHAKE: (0, 1),
    API_VERSIONS: (0, 3),
    AUTHENTICATE: (0, 2),
    ALTER_REASSIGNMENTS: (0, 0),
    DESCRIBE_QUOTAS: (0, 1),
    ALTER_QUOTAS: (0, 1),
}
USER, PASSWORD = "app", "pencil"
SALT = b"0123456789abcdef"
_PIECE = 64 * 1024
_LARGEST_REQUEST = 1 << 20


@dataclass(frozen=True, slots=True)
class Asked:
    api: int
    version: int
    correlation_id: int
    body: bytes
    port: int = 0  # that of the broker


Reply = Callable[[Asked], Sequence[bytes] | None]
"""The pieces to send for a request, frame and all; None sends the honest answer."""


@dataclass(frozen=True, slots=True)
class Scram:
    """What the broker's SCRAM messages say; the defaults are an honest broker's."""

    iterations: str = "4096"
    nonce: Callable[[str], str] = lambda ours: ours + "broker"
    final: Callable[[bytes], bytes] = lambda signature: b"v=" + base64.b64encode(signature)


async def _at_once(asked: Asked) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Fault:
    """How the broker misbehaves. `trickle_s` pauses after each byte of an answer to `trickle_on`.

    An answer is sent when `before` has returned.
    """

    reply: Reply = lambda asked: None
    before: Callable[[Asked], Awaitable[None]] = _at_once
    scram: Scram = field(default_factory=Scram)
    trickle_on: int | None = None
    trickle_s: float = 0.0


class HostileBroker:
    """Serves on a free port in a thread of its own while the block lasts."""

    def __init__(self, fault: Fault) -> None:
        self.port = 0
        self.asked: list[Asked] = []
        self._fault = fault
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        talks: set[asyncio.Task[None]] = set()

        async def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            talks.add(task)
            try:
                await self._talk(reader, writer)
            except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                pass  # the client went away, or the block ends
            finally:
                writer.transport.abort()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()

        server = await asyncio.start_server(begin, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        own = {asyncio.current_task()}
        while asyncio.all_tasks() - talks - own:  # a closed server drops what it has just accepted unclosed
            await asyncio.sleep(0)
        server.close()
        for talk in talks:
            talk.cancel()
        await asyncio.gather(*talks, return_exceptions=True)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        login = _Login(self._fault.scram)
        while True:
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            if not 0 < size < _LARGEST_REQUEST:
                return  # as Kafka does, for example where TLS begins on a plaintext port
            asked = replace(_asked(await reader.readexactly(size)), port=self.port)
            self.asked.append(asked)
            await self._fault.before(asked)
            pieces = self._fault.reply(asked)
            trickles = asked.api == self._fault.trickle_on
            for piece in (self._honest(asked, login),) if pieces is None else pieces:
                step = 1 if trickles else _PIECE
                for at in range(0, len(piece), step):
                    writer.write(piece[at : at + step])
                    await writer.drain()
                    await asyncio.sleep(self._fault.trickle_s if trickles else 0)

    def _honest(self, asked: Asked, login: _Login) -> bytes:
        match asked.api:
            case 18:
                return framed(asked, api_versions(asked.version), flexible=False)
            case 17:
                return framed(asked, struct.pack(">hi", 0, 1) + old_text("SCRAM-SHA-256"), flexible=False)
            case 36:
                return framed(asked, authenticated(login.answer(_auth_bytes(asked))))
            case _:
                return framed(asked, metadata([(1, "127.0.0.1", self.port)]))


class _Login:
    """The broker's side of SCRAM-SHA-256."""

    def __init__(self, scram: Scram) -> None:
        self._scram = scram
        self._first_bare = ""
        self._challenge = ""

    def answer(self, message: bytes) -> bytes:
        text = message.decode()
        if not self._first_bare:
            self._first_bare = text.removeprefix("n,,")
            ours = self._first_bare.partition(",r=")[2]
            salt = base64.b64encode(SALT).decode()
            self._challenge = f"r={self._scram.nonce(ours)},s={salt},i={self._scram.iterations}"
            return self._challenge.encode()
        salted = hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), SALT, int(self._scram.iterations))
        signed = f"{self._first_bare},{self._challenge},{text.rpartition(',p=')[0]}".encode()
        key = hmac.digest(salted, b"Server Key", "sha256")
        return self._scram.final(hmac.digest(key, signed, "sha256"))


def _asked(data: bytes) -> Asked:
    api, version, correlation_id, client = struct.unpack_from(">hhih", data)
    return Asked(api, version, correlation_id, data[10 + max(0, client) :])


def _auth_bytes(asked: Asked) -> bytes:
    """SaslAuthenticate v2: tagged fields of the header, a compact length, the bytes, tagged fields."""
    size, at, shift = 0, 1, 0
    while True:
        byte = asked.body[at]
        at += 1
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return asked.body[at : at + size - 1]


def frame_of(asked: Asked, body: bytes) -> tuple[bytes, bytes]:
    """The frame as two pieces, so that a large body is not copied."""
    header = struct.pack(">i", asked.correlation_id) + b"\0"
    return struct.pack(">i", len(header) + len(body)) + header, body


def framed(asked: Asked, body: bytes, *, flexible: bool = True, correlation_id: int | None = None) -> bytes:
    header = struct.pack(">i", asked.correlation_id if correlation_id is None else correlation_id)
    data = header + (b"\0" if flexible else b"") + body
    return struct.pack(">i", len(data)) + data


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def compact(data: bytes) -> bytes:
    return uvarint(len(data) + 1) + data


def old_text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def api_versions(version: int) -> bytes:
    """The ranges of `VERSIONS`, in the form of this version of the answer."""
    if version < 3:
        ranges = b"".join(struct.pack(">hhh", api, *both) for api, both in VERSIONS.items())
        return struct.pack(">hi", 0, len(VERSIONS)) + ranges + (struct.pack(">i", 0) if version else b"")
    ranges = b"".join(struct.pack(">hhh", api, *both) + b"\0" for api, both in VERSIONS.items())
    return struct.pack(">h", 0) + uvarint(len(VERSIONS) + 1) + ranges + struct.pack(">i", 0) + b"\0"


def authenticated(auth_bytes: bytes, error: int = 0, message: bytes = b"") -> bytes:
    return struct.pack(">h", error) + compact(message) + compact(auth_bytes) + struct.pack(">q", 0) + b"\0"


def topic(name: bytes, partitions: Iterable[int], error: int = 0) -> bytes:
    """A topic of Metadata v12, whose partitions have these numbers and broker 1 as leader."""
    led = [struct.pack(">hiii", 0, number, 1, 5) + b"\x02\0\0\0\1" * 2 + b"\1\0" for number in partitions]
    ends = struct.pack(">i", -(1 << 31)) + b"\0"
    listed = b"".join((uvarint(len(led) + 1), *led))
    return struct.pack(">h", error) + compact(name) + bytes(15) + b"\1\0" + listed + ends


def metadata(brokers: Iterable[tuple[int, str, int]], topics: Sequence[bytes] = ()) -> bytes:
    """Metadata v12 with these brokers (id, host, port) and topics."""
    listed = [
        struct.pack(">i", node) + compact(host.encode()) + struct.pack(">i", port) + b"\0\0"
        for node, host, port in brokers
    ]
    return (
        struct.pack(">i", 0)
        + uvarint(len(listed) + 1)
        + b"".join(listed)
        + compact(b"5L6g3nShT-eMCtK--X86sw")
        + struct.pack(">i", 1)
        + uvarint(len(topics) + 1)
        + b"".join(topics)
        + b"\0"
    )

"""A broker that says what a test tells it to, over a real socket."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated

from runtime.contract.client.settings import WireSettings
from runtime.kafka.connection import Connection
from runtime.kafka.dial import Dialer
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.handshake import ApiVersionsResponse
from runtime.kafka.protocol.layout import INLINE
from runtime.kafka.protocol.request import Api
from tests.runtime.kafka.protocol.golden import response

EVERYTHING = {int(api): (0, 20) for api in Api}


@dataclass(frozen=True, slots=True)
class Asked:
    api: Api
    version: int
    correlation_id: int
    body: bytes


@dataclass(slots=True)
class Talk:
    """One connection as the broker sees it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    asked: list[Asked] = field(default_factory=list)

    async def hear(self) -> Asked:
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        data = await self.reader.readexactly(size)
        api, version, correlation_id, client = struct.unpack_from(">hhih", data)
        asked = Asked(Api(api), version, correlation_id, data[10 + client :])
        self.asked.append(asked)
        return asked

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, asked: Asked, body: bytes, *, flexible: bool = True) -> None:
        await self.say(framed(asked.correlation_id, body, flexible=flexible))

    async def introduce(self, versions: dict[int, tuple[int, int]]) -> None:
        await self.answer(await self.hear(), api_versions(versions), flexible=False)


def framed(correlation_id: int, body: bytes, *, flexible: bool = True) -> bytes:
    data = struct.pack(">i", correlation_id) + (b"\0" if flexible else b"") + body
    return struct.pack(">i", len(data)) + data


def api_versions(versions: dict[int, tuple[int, int]], error: int = 0) -> bytes:
    return response(
        tuple[Annotated[ApiVersionsResponse, INLINE]], ApiVersionsResponse(ErrorCode(error), versions)
    )


@asynccontextmanager
async def broker(
    script: Callable[[Talk], Awaitable[None]], versions: dict[int, tuple[int, int]] | None = EVERYTHING
) -> AsyncIterator[int]:
    """Runs the script on each connection, after the introduction if it has versions, then closes it.

    Yields the port.
    """
    failures: list[BaseException] = []
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = Talk(reader, writer)
        writers.append(writer)
        try:
            if versions is not None:
                await talk.introduce(versions)
            await script(talk)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client went away
        except AssertionError as failure:
            failures.append(failure)
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in writers:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)
    assert not failures, failures


@asynccontextmanager
async def talking_to(
    script: Callable[[Talk], Awaitable[None]],
    versions: dict[int, tuple[int, int]] | None = EVERYTHING,
) -> AsyncIterator[Connection]:
    async with broker(script, versions) as port:
        dialer = Dialer(WireSettings((("127.0.0.1", port),)))
        connection = await dialer.dial("127.0.0.1", port, "test")
        try:
            yield connection
        finally:
            await connection.close()

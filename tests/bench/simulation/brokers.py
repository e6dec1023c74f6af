"""The process of a simulated cluster: all its brokers in one event loop, each on a port of its own.

python -m tests.bench.simulation.brokers SIZE SEED RATES

Its first line of output are the ports. After each line of input it prints what it has counted, as JSON. It
ends with its input.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import sys
from collections import Counter
from dataclasses import dataclass, field

import msgspec
import uvloop

from tests.bench.simulation.answers import BrokerAnswers, SimulatedCluster
from tests.bench.simulation.contents import NODES, ClusterContents, ClusterSize
from tests.bench.simulation.faults import Fault, FaultDraw, FaultRates
from tests.bench.simulation.wire import API_VERSIONS, asked

_LEADS, _LISTS = frozenset({0, 1, 2}), 3
SILENCE_S = 12.0  # longer than clients wait for one answer
_LARGEST_REQUEST = 100 << 20


@dataclass(slots=True)
class Counts:
    """What brokers received and sent, by API key, and the faults that they met."""

    requests: Counter[int] = field(default_factory=Counter)
    received: int = 0
    sent: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    unanswered: Counter[str] = field(default_factory=Counter)

    def text(self, committed: int) -> str:
        """Returns all counts as JSON, with the number of committed offsets."""
        counted = {
            "requests": {str(api): count for api, count in self.requests.items()},
            "received": self.received,
            "sent": self.sent,
            "faults": dict(self.faults),
            "unanswered": dict(self.unanswered),
            "committed": committed,
        }
        return msgspec.json.encode(counted).decode()


class _Broker:
    """Serves the connections to one broker."""

    def __init__(self, answers: BrokerAnswers, draw: FaultDraw, counts: Counts) -> None:
        self._answers = answers
        self._draw = draw
        self._counts = counts

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers one connection until it ends, one request after the other, as a broker does."""
        try:
            while await self._serve_one(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client closed it, or the cluster ends
        finally:
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Returns whether the connection stays open."""
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        if not 0 < size <= _LARGEST_REQUEST:
            return False
        data = await reader.readexactly(size)
        counts = self._counts
        counts.received += size + 4
        try:
            request = asked(data)
        except KeyError:
            counts.unanswered[str(struct.unpack_from(">hh", data))] += 1
            return False
        counts.requests[request.api] += 1
        fate = self._draw.next(request.api, leads=request.api in _LEADS, lists=request.api == _LISTS)
        if request.api != API_VERSIONS and fate.fault is Fault.CLOSED:
            return False
        if request.api != API_VERSIONS and fate.fault is Fault.SILENT:
            await asyncio.sleep(SILENCE_S)
        elif fate.delay_s:
            await asyncio.sleep(fate.delay_s)
        answer = await self._answers.answer(request, fate.fault)
        if writer.is_closing():  # the client waited no longer
            return False
        counts.sent += len(answer)
        writer.write(answer)
        await writer.drain()
        return True


async def _run(size: ClusterSize, seed: int, rates: FaultRates) -> None:
    cluster = SimulatedCluster(ClusterContents.of(size))
    counts = Counts()
    draws = [FaultDraw(seed, node, rates) for node in range(1, NODES + 1)]
    ports: list[int] = []
    brokers: list[_Broker] = []
    servers = []
    # The answers are made once all ports are known, before anything connects.
    for node in range(NODES):

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, at: int = node) -> None:
            await brokers[at].serve(reader, writer)

        servers.append(await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 20))
        ports.append(servers[-1].sockets[0].getsockname()[1])
    brokers += [
        _Broker(BrokerAnswers(node, cluster, ports), draws[node - 1], counts) for node in range(1, NODES + 1)
    ]
    print(msgspec.json.encode(ports).decode(), flush=True)
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(commands), sys.stdin
    )
    while await commands.readline():
        counts.faults = sum((one.drawn for one in draws), Counter[str]())
        committed = sum(map(len, cluster.contents.committed.values()))
        print(counts.text(committed), flush=True)


def main() -> int:
    size, seed, rates = sys.argv[1:]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(
            _run(
                msgspec.json.decode(size, type=ClusterSize),
                int(seed),
                msgspec.json.decode(rates, type=FaultRates),
            )
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""The server of the pages, over readings that a test gives or as the command runs it, and requests to it."""

import asyncio
import http.client
import json
import signal
import threading
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.request import urlopen

from msgspec.structs import replace

from planner.ui.access import AccessPolicy
from planner.ui.app import Site, application
from planner.ui.connections import LIMITS, ConnectionLimits
from planner.ui.feed import StatusFeed, now_ms
from planner.ui.server import Server, listen
from planner.workflows.requests import TopologyRequest
from runtime.contract.results.status import ReplicationStatus
from tests.commands import begin
from tests.records import wait_for

PATIENCE_S = 60.0
Given = ReplicationStatus | Exception


def fresh(status: ReplicationStatus) -> ReplicationStatus:
    """The same status, read now."""
    return replace(status, at_ms=now_ms())


class GivenReadings:
    """The readings of a test: those at the beginning, and those that it gives later."""

    def __init__(self, *first: Given) -> None:
        self._first = list(first)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._queue: asyncio.Queue[Given] = asyncio.Queue()

    async def __call__(self) -> AsyncGenerator[ReplicationStatus, None]:
        self._loop = asyncio.get_running_loop()
        first, self._first = self._first, []
        for one in first:
            self._queue.put_nowait(one)
        while True:
            given = await self._queue.get()
            if isinstance(given, Exception):
                raise given
            yield given

    def give(self, one: Given) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._queue.put_nowait, one)


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    text: str


class Parsed(HTMLParser):
    """What a browser makes of a page: its elements, their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@dataclass
class Visited:
    """A running server."""

    readings: GivenReadings
    site: Site
    server: Server
    port: int
    ended: threading.Event = field(default_factory=threading.Event)

    def ask(self, path: str, method: str = "GET", body: str | None = None, **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        given = {"Accept": "text/html", **{name.replace("_", "-"): value for name, value in headers.items()}}
        connection.request(method, path, body, given)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, text)

    def page(self, path: str, status: int = 200) -> Parsed:
        answer = self.ask(path)
        assert answer.status == status, answer.text
        return Parsed(answer.text)

    @contextmanager
    def events(self) -> Iterator[Iterator[str]]:
        """The names of the events, as they come."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        connection.request("GET", "/events")
        answer = connection.getresponse()
        assert answer.getheader("content-type", "").startswith("text/event-stream")
        lines = (line.decode().strip() for line in iter(answer.readline, b""))
        try:
            yield (line.removeprefix("event: ") for line in lines if line.startswith("event: "))
        finally:
            connection.close()

    def until(self, changes: int) -> None:
        """Waits until the feed has told of so many changes."""
        if self.site.feed.changes < changes:
            with self.events() as events:
                for _ in events:
                    if self.site.feed.changes >= changes:
                        return

    def give(self, one: Given) -> None:
        before = self.site.feed.changes
        self.readings.give(one)
        self.until(before + 1)


@contextmanager
def serving(
    *first: Given,
    path: Path = Path("nowhere.yaml"),
    policy: AccessPolicy | None = None,
    limits: ConnectionLimits = LIMITS,
) -> Iterator[Visited]:
    """Serves the given readings; returns when the first of them are shown."""
    readings = GivenReadings(*first)
    feed = StatusFeed(readings)
    site = Site(TopologyRequest(path, timeout_ms=1_000), feed, policy or AccessPolicy())
    listening = listen(0)
    server = Server(application(site), site.end, limits)
    visited = Visited(readings, site, server, listening.getsockname()[1])

    def run() -> None:
        asyncio.run(server.serve(sockets=[listening]))
        visited.ended.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        if policy is None or policy.token is None:
            visited.until(len(first))
        yield visited
    finally:
        server.should_exit = True
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "the server does not end"


class LivePage:
    """`repl ui` over the topology in a file, on a free port. `home` is the launcher's."""

    def __init__(self, file: Path, home: Path) -> None:
        self._process = begin("ui", str(file), "--port", "0", "--json", env={"REPL_HOME": str(home)})
        assert self._process.stdout is not None
        self.url = json.loads(self._process.stdout.readline())["url"]

    def text(self, path: str = "") -> str:
        with urlopen(self.url + path, timeout=PATIENCE_S) as answer:  # a 404 is an error
            return Parsed(answer.read().decode()).text

    def says(self, words: str, path: str = "") -> None:
        wait_for(lambda: words in self.text(path), 240, about=lambda: f"{words!r} on the live page")

    def close(self) -> int:
        """As Ctrl-C does. Returns the exit code."""
        self._process.send_signal(signal.SIGINT)
        output, errors = self._process.communicate(timeout=PATIENCE_S)
        assert "Traceback" not in errors, errors
        assert output == ""
        return self._process.returncode

    def kill(self) -> None:
        """Ends it where it still runs, and closes its pipes."""
        if self._process.returncode is None:
            self._process.kill()
            self._process.communicate()

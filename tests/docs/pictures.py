"""`make screenshots`: the pictures of README.md and docs/, taken from real clusters with running jobs.

The clusters are a lab of this command's own, on free ports. The topologies are the examples in plans/, with
the lab's addresses.
"""

import json
import os
import pty
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from pathlib import Path

from confluent_kafka import Producer
from playwright.sync_api import Browser, Page, expect
from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text

from planner.workflows.topology import HOME
from runtime.lab.lab import Lab
from runtime.launch.processes import sweep
from tests.browser import DESKTOP, chromium, viewing
from tests.commands import HERE, REPL, environment, repl
from tests.labs import running_lab, spec
from tests.planner.ui.serving import LivePage
from tests.records import PATIENCE_S, wait_for

PICTURES = HERE / "docs" / "pictures"
EXAMPLES = HERE / "plans" / "examples"
MOST_BYTES = 200_000
LONG_MS = 300_000
COLUMNS = 118
PER_S = 50  # records to each topic
PLAN_WIDTH = 1100
# What is edited between the apply and the plan that is shown.
EDITS = (
    ("partitions: 6, config: {retention.ms: 7d}", "partitions: 12, config: {retention.ms: 14d}"),
    ("rpo: 5s", "rpo: 3s"),
    ("\nflows:", "  - {name: payments.fee, cluster: dc1, partitions: 3}\n\nflows:"),
)
TERMINAL = """<!doctype html><meta charset="utf-8"><style>
body{{margin:0;background:#fff;display:inline-block}}
div{{display:inline-block;background:#20262e;color:#d6dde6;border-radius:10px;padding:14px 20px;margin:2px}}
pre{{margin:0;font:15px/1.45 "DejaVu Sans Mono",monospace}}
</style><div id="terminal"><pre>{code}</pre></div>"""


class Story:
    """An example on the lab: its file with the lab's addresses, and its jobs' folder."""

    def __init__(self, lab: Lab, folder: Path, example: str) -> None:
        self.lab = lab
        self.home = folder / example
        self.file = folder / f"{example}.yaml"
        text = (EXAMPLES / f"{example}.yaml").read_text()
        for name, cluster in lab.clusters.items():
            text = re.sub(
                rf"{name}: {{bootstrap: [^}}]*}}", f"{name}: {{bootstrap: '{cluster.bootstrap}'}}", text
            )
        text = text.replace(", protect: true", "")  # a protected topic refuses the destroy at the end
        self.file.write_text(re.sub(r"\n  (dc\d): {metrics: .*?}}", r"\n  \1: {metrics: false}", text))

    def run(self, *arguments: str) -> str:
        done = repl(*arguments, str(self.file), env={HOME: str(self.home)}, timeout=600)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout

    @contextmanager
    def applied(self) -> Iterator[None]:
        self.run("apply", "--auto-approve")
        try:
            yield
            self.run("destroy", "--auto-approve")
        finally:
            sweep(f"{HOME}={self.home}")  # after an error jobs would outlive the lab

    @contextmanager
    def loaded(self, *places: str) -> Iterator[None]:
        """Records are written all the time to the topics, each named as `dc1:orders`."""
        stop = threading.Event()
        threads = [threading.Thread(target=self._load, args=(place, stop)) for place in places]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join()

    def _load(self, place: str, stop: threading.Event) -> None:
        cluster, _, topic = place.partition(":")
        producer = Producer({**self.lab.clusters[cluster].client, "linger.ms": 5})
        number = 0
        while not stop.wait(1 / PER_S):
            number += 1
            producer.produce(topic, f"record {number} of {place}".encode(), key=str(number % 100).encode())
            producer.poll(0)
        producer.flush(PATIENCE_S)

    def coloured(self, *arguments: str) -> str:
        """What a command prints on a terminal, with its colours."""
        ours, its = pty.openpty()
        env = environment({HOME: str(self.home), "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"})
        with subprocess.Popen([*REPL, *arguments, str(self.file)], env=env, stdout=its) as process:
            os.close(its)
            parts = []
            try:
                while part := os.read(ours, 65_536):
                    parts.append(part)
            except OSError:  # the other end is closed
                pass
            os.close(ours)
        assert process.returncode == 0
        return b"".join(parts).decode().replace("\r\n", "\n")


def live_page(story: Story, browser: Browser) -> bytes:
    """The overview of the demo, while records are written at both sides."""
    served = LivePage(story.file, story.home)
    try:
        with viewing(browser, served.url, color_scheme="light", timezone_id="UTC") as page:
            expect(page.locator("#flows .chip", has_text="copying")).to_have_count(4, timeout=LONG_MS)
            return page.screenshot()
    finally:
        served.close()


def terminal(text: str, page: Page) -> bytes:
    """A terminal that shows coloured text."""
    console = Console(record=True, file=StringIO(), width=COLUMNS)
    console.print(Text.from_ansi(text), soft_wrap=True)
    page.set_content(console.export_html(theme=SVG_EXPORT_THEME, code_format=TERMINAL, inline_styles=True))
    return page.locator("#terminal").screenshot()


def plan_page(story: Story, page: Page, folder: Path) -> bytes:
    """The page of a plan, after the topology was edited."""
    text = story.file.read_text()
    for old, new in EDITS:
        assert old in text
        text = text.replace(old, new, 1)
    story.file.write_text(text)
    out = folder / "plan.html"
    story.run("plan", "--html", str(out))
    page.set_viewport_size({"width": PLAN_WIDTH, "height": 400})
    page.goto(out.as_uri())
    return page.screenshot(full_page=True)


def take(browser: Browser, lab: Lab, folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yields the name of each picture, and the picture."""
    demo = Story(lab, folder, "replicator-demo")
    with demo.applied(), demo.loaded("dc1:topic1", "dc2:topic1", "dc1:topic2", "dc1:_schemas"):
        yield "ui.png", live_page(demo, browser)
    shop = Story(lab, folder, "active-passive")
    page = browser.new_page(viewport=DESKTOP, color_scheme="light", device_scale_factor=1)
    with shop.applied():
        with shop.loaded("dc1:orders", "dc1:payments.card", "dc1:payments.refund"):
            _until_copied(shop)
            text = shop.coloured("status", "--topics")
            yield "status.png", terminal(f"$ repl status --topics\n{text.rstrip()}", page)
        yield "plan.png", plan_page(shop, page, folder)


def _until_copied(story: Story) -> None:
    """Waits until every topic is copied, at a rate that is known."""

    def holds() -> bool:
        (flow,) = json.loads(story.run("status", "--json"))["flows"]
        return len(flow["topics"]) == 3 and all(
            (one["records_per_s"] or 0) > PER_S / 2 for one in flow["topics"]
        )

    wait_for(holds, LONG_MS / 1000)


def main(names: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with running_lab(folder / "lab", spec("dc1"), spec("dc2")) as lab, chromium() as browser:
            for picture, body in take(browser, lab, folder):
                assert len(body) <= MOST_BYTES, f"{picture} has {len(body)} bytes"
                if not names or picture in names:
                    (PICTURES / picture).write_bytes(body)
                    print(f"docs/pictures/{picture}  {len(body):,} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])

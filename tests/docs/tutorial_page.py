"""Reads a page of commands and outputs, runs the commands, and compares what they print with the page.

A block `sh` holds commands. A block `text` right behind it holds what they print, stdout and stderr together.
A line of a `text` block that is only `⋮` stands for any number of lines. A comment above a block tells how it
is run: `<!-- test: skip -->` does not run it, `<!-- test: until -->` runs it again until the output is right.
"""

import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

ANY_LINES = "⋮"
_UNTIL_S = 180.0
_BLOCK_S = 240.0
_FENCE = re.compile(
    r"^(?:<!-- test: (?P<mark>\w+) -->\n+)?```(?P<kind>sh|text)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL
)
# What differs from run to run. Both sides are rewritten by the same rules, in this order.
_VARIES: Sequence[tuple[str, str]] = (
    (r"\b\d{8}T\d{6}-[0-9a-f]{6}\b", "APPLY-ID"),
    (r"\bsha256:[0-9a-f]+", "DIGEST"),
    (r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?( ?UTC|Z)?", "TIME"),
    (r"127\.0\.0\.1:\d+", "ADDRESS"),
    (r"(?<![\w-])(?=[\w-]*[a-z])(?=[\w-]*[A-Z])[\w-]{22}(?![\w-])", "CLUSTER-ID"),  # it may have no digit
    (r"\bindex [0-9a-f]+\.\.[0-9a-f]+", "index"),
    (r"\b\d+ +\d+ MB\b", "PID MEMORY"),
    (r"\b[\d,.]+(?: [kMG]?B)?/s", "RATE"),
    (r"\b[\d,.]+ [kMG]?B\b", "SIZE"),
    (r"\b[\d.]+ (?:s|ms|min)\b", "DURATION"),
    (r"(?<= {2})- {2}(?= *- *0$)", "DURATION  "),  # a latency that is not known yet
    (r"[ \t]+", " "),
)


@dataclass(frozen=True)
class Block:
    """A Block is some commands, and the output that the page shows for them, or None."""

    commands: str
    output: str | None
    mark: str | None
    line: int


def blocks(page: str) -> list[Block]:
    """Returns the commands of a page in order, each with the output that stands behind it."""
    fences = list(_FENCE.finditer(page))
    found = []
    for fence, after in pairwise([*fences, None]):
        if fence is None or fence["kind"] != "sh":
            continue
        shown = (
            after is not None and after["kind"] == "text" and not page[fence.end() : after.start()].strip()
        )
        output = after["body"] if after is not None and shown else None
        found.append(
            Block(fence["body"], output, fence["mark"], page.count("\n", 0, fence.start("kind")) + 1)
        )
    return found


def normal(text: str) -> list[str]:
    """Returns the lines that are not empty, without what differs from run to run."""
    for pattern, word in _VARIES:
        text = re.sub(pattern, word, text, flags=re.MULTILINE)
    return [line.strip() for line in text.splitlines() if line.strip()]


def matches(shown: str, printed: str) -> bool:
    """Returns whether the printed lines are the shown ones; `⋮` stands for any number of lines."""
    groups: list[list[str]] = [[]]
    for line in normal(shown):
        if line == ANY_LINES:
            groups.append([])
        else:
            groups[-1].append(line)
    lines = normal(printed)
    if len(groups) == 1:
        return lines == groups[0]
    first, *middle, last = groups
    if lines[: len(first)] != first or len(lines) < len(first) + len(last):
        return False
    end = len(lines) - len(last)
    at = len(first)
    for group in middle:
        starts = range(at, end - len(group) + 1)
        found = next((start for start in starts if lines[start : start + len(group)] == group), None)
        if found is None:
            return False
        at = found + len(group)
    return lines[end:] == last


@dataclass
class Runner:
    """A Runner runs blocks in bash, in order. Each begins in the folder where the last one ended."""

    folder: Path
    environment: Mapping[str, str]
    rewrite: Mapping[str, str]  # text of commands → what is run in its place: ports that are free

    def run(self, block: Block) -> str:
        """Returns what the block prints, once it is what the page shows or cannot become it any more."""
        deadline = time.monotonic() + _UNTIL_S
        while True:
            printed = self._once(block)
            right = block.output is None or matches(block.output, printed)
            if right or block.mark != "until" or time.monotonic() > deadline:
                return printed

    def _once(self, block: Block) -> str:
        commands = block.commands
        for text, instead in self.rewrite.items():
            commands = commands.replace(text, instead)
        ended_in = self.folder.parent / "folder-of-the-page"
        done = subprocess.run(
            ["bash", "-c", f"{commands}\nended=$?; pwd > {ended_in}; exit $ended"],
            cwd=self.folder,
            env=dict(self.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_BLOCK_S,
            check=False,
        )
        assert done.returncode == 0, (
            f"line {block.line}: exit code {done.returncode}\n{commands}\n{done.stdout}"
        )
        self.folder = Path(ended_in.read_text().strip())
        return done.stdout

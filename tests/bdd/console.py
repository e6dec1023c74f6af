"""Kafka's own console consumer, as somebody without this product would use it."""

from collections.abc import Callable

from tests.bdd.running import Town, eventually
from tests.labs import run_tool

_QUIET_MS = "4000"


def read_on(town: Town, group: str, word: str, cluster: str, most: int | None = None) -> list[bytes]:
    """What the group reads from where it stands: `most` records, or until nothing comes any more."""
    until = ("--max-messages", str(most)) if most is not None else ("--timeout-ms", _QUIET_MS)
    told = run_tool(
        town.lab,
        cluster,
        "ConsoleConsumer",
        *("--topic", town.name(word), "--group", town.name(group), "--from-beginning"),
        *("--isolation-level", "read_committed", "--formatter-property", "print.partition=true", *until),
        timeout=240,
    )
    # It complains among its records when none comes any more.
    lines = (line.split("\t") for line in told.splitlines() if line.startswith("Partition:"))
    return [value.encode() for _, value in lines]


def read_rest(
    town: Town, group: str, word: str, cluster: str, enough: Callable[[list[bytes]], bool]
) -> list[bytes]:
    """As often as it takes; each time until nothing comes, so that what is too much is seen as well."""
    found: list[bytes] = []

    def done() -> bool:
        found.extend(read_on(town, group, word, cluster))
        return enough(found)

    eventually(done, about=f"{word} for {group}")
    return found

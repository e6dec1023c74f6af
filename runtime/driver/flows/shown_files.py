"""Chooses the files of a flow from files that its status shows: a source may have any number of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from heapq import nlargest
from itertools import islice
from typing import Final

from runtime.contract.records.ledger import PartitionKey

SHOWN: Final = 2_000


def shown_files(
    stopped: Collection[PartitionKey],
    waiting: Mapping[PartitionKey, int],
    read: Mapping[PartitionKey, int],
    unit: str,
    most: int = SHOWN,
) -> tuple[set[PartitionKey], list[str]]:
    """Returns the files that are shown, and notes about the others.

    Those that someone must decide about come first, then those with the most to read, then those that were
    read last. `waiting` has what is left to read, in `unit`, and `read` when each known file was read last.
    """
    every = {*stopped, *waiting, *read}
    if len(every) <= most:
        return every, []
    behind = sorted(waiting, key=lambda key: (-waiting[key], key))
    newest = nlargest(most, read, key=lambda key: (read[key], key))
    shown = set(islice(dict.fromkeys((*sorted(stopped), *behind, *newest)), most))
    left = [size for key, size in waiting.items() if size and key not in shown]
    note = f"{len(every) - len(shown):,} more files are not shown"
    if left:
        note += f", and {sum(left):,} {unit} of {len(left):,} of them are not read yet"
    return shown, [note]

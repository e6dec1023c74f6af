"""How far the reading is, for whoever shows it."""

from typing import Protocol


class ProgressCallback(Protocol):
    def __call__(self, cluster: str, what: str, done: int, total: int) -> None:
        """`done` of `total` parts of one kind of reading are there. Called from several threads."""


def no_progress(cluster: str, what: str, done: int, total: int) -> None:
    """Shows nothing."""

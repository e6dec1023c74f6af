"""This module holds the lab's error: what went wrong, where, and the hint."""


class LabError(Exception):
    """The lab can't do what was requested; `way_out` is the hint for the user."""

    def __init__(self, what: str, way_out: str = "", *, where: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.way_out = way_out
        self.where = where

    def __str__(self) -> str:
        where = f"{self.where}: " if self.where else ""
        tail = f" — {self.way_out}" if self.way_out else ""
        return f"{where}{self.what}{tail}"


class LabBusy(LabError):
    """Another process holds the lock of the folder."""

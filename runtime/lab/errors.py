"""The one error of the lab: what went wrong, where, and the way out."""


class LabError(Exception):
    def __init__(self, what: str, way_out: str = "", *, where: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.way_out = way_out
        self.where = where

    def __str__(self) -> str:
        where = f"{self.where}: " if self.where else ""
        tail = f" — {self.way_out}" if self.way_out else ""
        return f"{where}{self.what}{tail}"


class Busy(LabError):
    """Somebody else is at work there."""

"""An environment in which packages are missing."""

import sys

import pytest


def without(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    """Makes packages missing: Python takes None for a module that is not there."""
    for package in packages:
        monkeypatch.setitem(sys.modules, package, None)

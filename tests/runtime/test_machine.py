"""The locks between processes of one machine."""

import os
from pathlib import Path

from runtime.machine import hold


def test_a_lock_has_one_holder_and_goes_with_it(tmp_path: Path) -> None:
    first = hold(tmp_path / "lock")
    assert first is not None
    assert hold(tmp_path / "lock", 0.1) is None
    os.close(first)
    again = hold(tmp_path / "lock")
    assert again is not None
    os.close(again)

"""New files: whole or not at all, never over another file, also where the file system has no hard links."""

import errno
import os
import stat
from pathlib import Path

import pytest

from planner.model.diagnostic import Failure
from planner.workflows.new_files import new_file


class Refusing:
    """A file system that refuses hard links. `meanwhile` is what another process writes into the file."""

    def __init__(self, code: int, meanwhile: str = "") -> None:
        self.code = code
        self.meanwhile = meanwhile

    def __call__(self, written: str, file: Path) -> None:
        if self.meanwhile:
            file.write_text(self.meanwhile)
        raise OSError(self.code, os.strerror(self.code))


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP])
@pytest.mark.parametrize("private", [True, False])
def test_a_file_is_written_where_the_file_system_has_no_hard_links(tmp_path, code, private) -> None:
    file = tmp_path / "t.yaml"
    with new_file(file, private=private, link=Refusing(code)) as write:
        write("größer")
    assert file.read_text(encoding="utf-8") == "größer"
    assert bool(stat.S_IMODE(file.stat().st_mode) & 0o044) is not private
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("code", "meanwhile", "left"),
    [
        (errno.ENOSPC, "", []),
        (errno.EPERM, "of another", ["t.yaml"]),
        (errno.EEXIST, "of another", ["t.yaml"]),
    ],
)
def test_no_file_is_written_over_another_or_in_part(tmp_path, code, meanwhile, left) -> None:
    file = tmp_path / "t.yaml"
    with (
        pytest.raises(Failure, match="can't be written"),
        new_file(file, link=Refusing(code, meanwhile)) as write,
    ):
        write("mine")
    assert [path.name for path in tmp_path.iterdir()] == left
    assert not left or file.read_text() == meanwhile

"""In which file a record of the source is, and which number it has there."""

from pathlib import Path

import pytest
from msgspec.structs import replace as changed

from runtime.audit.ledger import AuditFailure, ClusterAccess
from runtime.audit.offsets.locate_file import LocateInFilesRequest, _Place, _search
from runtime.contract.records.manifest import DataFile
from runtime.contract.spec.files import FilesSpec, Format
from tests.runtime.audit.test_verify_stored import RECORDS, written

FORMATS: list[Format] = ["raw", "json", "parquet"]


def search(folder: Path, form: Format, files: list[DataFile], offset: int) -> _Place | None:
    spec = FilesSpec(endpoint="lake", folder=str(folder), format=form)
    asked = LocateInFilesRequest("f", "orders", 0, offset, None, ClusterAccess("dc1", "b:1"), spec)
    return _search(asked, files, offset)


@pytest.mark.parametrize("form", FORMATS)
def test_each_record_has_its_number(tmp_path: Path, form: Format) -> None:
    files = written(tmp_path, form)
    for number, one in enumerate(RECORDS, 1):
        assert search(tmp_path, form, files, one.offset) == (one.offset, files[0].path, number)


@pytest.mark.parametrize("form", FORMATS)
def test_where_there_is_no_record_the_next_one_is_found(tmp_path: Path, form: Format) -> None:
    files = written(tmp_path, form)
    assert search(tmp_path, form, files, 8) == (9, files[0].path, 4)
    assert search(tmp_path, form, [changed(files[0], end=20)], 10) is None


def test_the_next_record_may_be_in_the_folder_of_another_day(tmp_path: Path) -> None:
    files = written(tmp_path, "json", "{topic}/date={date}/")
    assert [search(tmp_path, "json", files, offset) for offset in (5, 6, 7)] == [
        (offset, next(one.path for one in files if one.first <= offset < one.end and day in one.path), number)
        for offset, day, number in ((5, "2023-11-15", 1), (6, "2023-11-16", 1), (7, "2023-11-15", 2))
    ]


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    files = written(tmp_path, "json")
    (tmp_path / files[0].path).unlink()
    with pytest.raises(AuditFailure, match=files[0].path) as raised:
        search(tmp_path, "json", files, 5)
    assert (
        raised.value.hint == "run it again if the job merges files; repl verify f names all that are damaged"
    )

"""Chooses where the files of a flow come from, and what reads them, by the flow's spec."""

from __future__ import annotations

from pathlib import Path

from runtime.contract.client.stores import is_store
from runtime.contract.spec.files import LinesSpec, SourceFormat
from runtime.files.source.file_source import FileSource
from runtime.files.source.folder import FolderSource
from runtime.files.source.lines import FileReader, LineReader
from runtime.files.source.open_file import OpenFile


def source_of(lines: LinesSpec) -> FileSource:
    """Returns the files of a flow, at which nothing was looked yet."""
    in_rows = lines.format == "parquet"
    if not is_store(lines.folder):
        return FolderSource(Path(lines.folder), recursive=lines.recursive, in_rows=in_rows)
    from runtime.files.source.bucket import BucketSource  # only a bucket loads obstore
    from runtime.files.source.s3_bucket import S3Bucket

    bucket = S3Bucket(lines.folder, lines.client)  # a spec with another kind of store is refused
    return BucketSource(bucket, recursive=lines.recursive, in_rows=in_rows)


def reader_of(file: OpenFile, form: SourceFormat) -> FileReader:
    """Returns the reader of an open file. Raises OSError."""
    if form != "parquet":
        return LineReader(file, form)
    from runtime.files.source.parquet_rows import RowReader  # only this format loads pyarrow

    return RowReader(file)

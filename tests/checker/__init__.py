"""The checker: proves a copy record by record. Itself proven on forged copies (test_compare.py).

    written = checker.write(source, "orders", checker.Spec(records=5000))
    report = checker.compare(source, there, "orders", written=written)
    assert report.clean, report

or, while things are being killed:

    with checker.writing(source, "orders", checker.Spec(rate=500)) as writer:
        ...
    report = checker.compare(source, there, "orders", written=writer.written)

Clients are librdkafka settings. Records of 5 MB need checker.TOPIC_CONFIG on both topics.
"""

from tests.checker.compare import compare, compare_logs
from tests.checker.reader import Log, Reader, Seen, read
from tests.checker.report import Finding, Kind, Report
from tests.checker.shapes import TOPIC_CONFIG, Spec
from tests.checker.transformed import DELETING, TRANSFORM, deleting, masking, transformed
from tests.checker.writer import Writing, Written, write, writing

__all__ = [
    "DELETING",
    "TOPIC_CONFIG",
    "TRANSFORM",
    "Finding",
    "Kind",
    "Log",
    "Reader",
    "Report",
    "Seen",
    "Spec",
    "Writing",
    "Written",
    "compare",
    "compare_logs",
    "deleting",
    "masking",
    "read",
    "transformed",
    "write",
    "writing",
]

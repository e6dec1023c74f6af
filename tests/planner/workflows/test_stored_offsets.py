"""What becomes of the entries of a file of stored offsets, by the answers of a flow's offset map."""

from collections import Counter
from pathlib import Path

import pytest

from planner.config.stored_offsets import open_offsets
from planner.model.diagnostic import Failure
from planner.workflows import translate_checkpoint
from planner.workflows.audit.stored_offsets import _Count, _texts
from planner.workflows.requests import TranslateOffsetsRequest
from runtime.audit.offsets.translate import Problem, TranslatedPartition, Translations
from runtime.contract.results.groups import UntranslatableReason as Reason
from runtime.contract.results.groups import UntranslatedOffset

ANSWERS: Translations = {
    ("orders", 0): TranslatedPartition(
        "dc1.orders", {50: 150, 999: Problem(Reason.NOT_REACHED, "copied up to 60")}
    ),
    ("gone", 0): Problem(Reason.NOT_SELECTED, "not copied"),
}


def key(topic: str) -> str:
    return f'["sink",{{"kafka_partition":0,"kafka_topic":"{topic}"}}]'


def answered(folder: Path, content: str) -> tuple[str, list[UntranslatedOffset]]:
    """The text at the other side, and the entries without a counterpart."""
    path, untranslated = folder / "offsets", list[UntranslatedOffset]()
    path.write_text(content)
    count = _Count(untranslated.append)
    with open_offsets(path) as file:
        text = "".join(_texts(list(file.entries), ANSWERS, count))
    assert count.untranslated == Counter(entry.reason for entry in untranslated)
    return text, untranslated


def test_an_older_offset_of_a_connector_never_stands_in_for_its_last_one(tmp_path: Path) -> None:
    lines = "".join(f'{key("orders")}\t{{"kafka_offset":{offset}}}\n' for offset in (50, 999))
    text, (untranslated,) = answered(tmp_path, lines)
    assert text == ""
    assert (untranslated.line, untranslated.offset, untranslated.reason) == (2, 999, Reason.NOT_REACHED)


def test_a_deleted_offset_of_a_connector_lacks_no_counterpart(tmp_path: Path) -> None:
    lines = [
        f'{key("gone")}\t{{"kafka_offset":1}}',
        f'{key("orders")}\t{{"kafka_offset":50}}',
        f"{key('gone')}\tnull",
        '["file",{"filename":"x"}]\tnull',
    ]
    text, untranslated = answered(tmp_path, "\n".join(lines))
    assert text == f'{key("dc1.orders")}\t{{"kafka_offset":150}}\n'
    assert untranslated == []


def test_an_offset_that_was_never_committed_has_a_reason(tmp_path: Path) -> None:
    text, (untranslated,) = answered(tmp_path, "orders,0,-1\norders,0,50\n")
    assert text == "dc1.orders,0,150\n"
    assert (untranslated.topic, untranslated.line) == ("orders", 1)
    assert untranslated.reason is Reason.NO_KAFKA_OFFSET
    assert untranslated.why == "-1 is no offset: nothing was committed"


def test_a_folder_that_is_there_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    request = TranslateOffsetsRequest(path=tmp_path / "missing", flow="flow", file=tmp_path / "missing")
    with pytest.raises(Failure, match="is there already"):
        translate_checkpoint(request, tmp_path, lambda _: None)

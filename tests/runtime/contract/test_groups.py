"""What is done with one offset of a group: forward only, back only after a rewind, never over another's."""

import pytest

from runtime.contract.groups import (
    CommitDecision,
    Decision,
    GroupOffsetState,
    NoCommitDecision,
    PendingTranslation,
    Position,
    TranslatedOffset,
    UntranslatableOffset,
    decide,
    group_selector,
    is_ours,
    own_groups,
)
from runtime.contract.records.group_records import Checkpoint, CheckpointState
from runtime.contract.spec.jobspec import (
    FlowSpec,
    GroupsSpec,
    JobSpec,
    OriginCommitsSpec,
    RouteSpec,
    SelectionSpec,
)

NOW = 10 * 24 * 60 * 60 * 1000
STATE = CheckpointState


def wrote(destination: int, source: int, *, ms: int = NOW, before: int = -1) -> Checkpoint:
    return Checkpoint(
        source=source,
        destination=destination,
        at_ms=ms,
        state=STATE.TRANSLATED,
        destination_topic="t",
        written=destination,
        written_source=source,
        written_ms=ms,
        before=before,
    )


@pytest.mark.parametrize(
    ("found", "seen", "decision"),
    [
        pytest.param(TranslatedOffset(5), GroupOffsetState(5, None), CommitDecision(5), id="nobody was here"),
        pytest.param(TranslatedOffset(5), GroupOffsetState(5, 3), CommitDecision(5), id="forward"),
        pytest.param(
            TranslatedOffset(5, clamped=True),
            GroupOffsetState(5, 3),
            CommitDecision(5, clamped=True),
            id="forward, clamped",
        ),
        pytest.param(
            TranslatedOffset(5), GroupOffsetState(5, 5), NoCommitDecision(STATE.TRANSLATED, 5), id="done"
        ),
        pytest.param(
            TranslatedOffset(5),
            GroupOffsetState(5, 9),
            NoCommitDecision(STATE.AHEAD, 5, why="it stands at 9 already"),
            id="further by itself",
        ),
        pytest.param(
            TranslatedOffset(5), GroupOffsetState(105, 9, {9}, wrote(9, 109)), CommitDecision(5), id="rewound"
        ),
        pytest.param(
            TranslatedOffset(5),
            GroupOffsetState(105, 8, {9}, wrote(9, 109)),
            NoCommitDecision(STATE.AHEAD, 5, why="it stands at 8 already"),
            id="rewound, but read on here since",
        ),
        pytest.param(
            TranslatedOffset(5),
            GroupOffsetState(109, 9, {9}, wrote(9, 109)),
            NoCommitDecision(STATE.AHEAD, 5, why="it stands at 9 already"),
            id="not rewound",
        ),
        pytest.param(
            TranslatedOffset(5),
            GroupOffsetState(5, 5, {5}, wrote(5, 5, ms=0)),
            CommitDecision(5),
            id="said again before it expires",
        ),
        pytest.param(
            TranslatedOffset(5),
            GroupOffsetState(5, 5, (), wrote(4, 4, ms=0)),
            NoCommitDecision(STATE.TRANSLATED, 5),
            id="a member's own",
        ),
        pytest.param(
            PendingTranslation("w"),
            GroupOffsetState(5, None),
            NoCommitDecision(STATE.PENDING, why="w"),
            id="pending",
        ),
        pytest.param(
            UntranslatableOffset("w"),
            GroupOffsetState(5, None),
            NoCommitDecision(STATE.UNMAPPED, why="w"),
            id="unmapped",
        ),
    ],
)
def test_decisions(found: Position, seen: GroupOffsetState, decision: Decision) -> None:
    assert decide(found, seen, NOW) == decision


def test_what_this_product_wrote_is_no_groups_own() -> None:
    written = [wrote(7, 70, before=5), wrote(11, 110)]
    assert [offset for offset in range(13) if is_ours(offset, written)] == [5, 7, 11]


def test_the_default_denials_of_groups() -> None:
    selector = group_selector(GroupsSpec())
    assert selector.answer("billing").taken
    assert not any(selector.answer(name).taken for name in ("console-consumer-1", "connect-sink", "__x"))
    named = group_selector(GroupsSpec(selection=SelectionSpec(include=["connect-sink"])))
    assert named.answer("connect-sink").taken


def test_groups_that_only_show_progress_are_known() -> None:
    flow = FlowSpec(
        name="f",
        source="a",
        destination="b",
        topics=SelectionSpec(include=["t"]),
        origin_commits=OriginCommitsSpec(group="shown"),
    )
    route = RouteSpec(name="other", source="b", destination="a", topics=SelectionSpec(include=["t"]))
    spec = JobSpec(job="b", topology="t", destination="b", clusters={}, flows=[flow], routes=[route])
    assert own_groups(spec) == {"shown", "repl.other"}

"""What was decoded last is used again for the same bytes, within a limit."""

from __future__ import annotations

from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from runtime.kafka.protocol.last_decoded import LastDecoded
from runtime.kafka.protocol.metadata import MetadataRequest, TopicMetadata
from tests.runtime.kafka.protocol.golden import read

RESPONSES = st.lists(st.tuples(st.sampled_from("abc"), st.binary(max_size=12)), max_size=30)


@given(RESPONSES, st.integers(0, 30))
def test_the_value_is_that_of_the_bytes_and_the_limit_holds(responses, most_bytes):
    kept: LastDecoded[str] = LastDecoded(most_bytes)
    for request, data in responses:
        expected = f"{request}{data!r}"
        assert kept.value(request, memoryview(data), partial(str, expected)) == expected
        held = [len(one) for one, _ in kept._last.values()]
        assert sum(held) == kept._bytes <= most_bytes


def test_equal_bytes_are_decoded_once():
    kept: LastDecoded[str] = LastDecoded()
    decoded = []

    def decode() -> str:
        decoded.append(1)
        return "value"

    assert [kept.value("a", memoryview(b"same"), decode) for _ in range(3)] == ["value"] * 3
    assert len(decoded) == 1
    kept.value("b", memoryview(b"same"), decode)
    kept.value("a", memoryview(b"other"), decode)
    assert len(decoded) == 3


def test_topics_that_a_broker_repeats_are_the_same_objects():
    kept: LastDecoded[tuple[TopicMetadata, ...]] = LastDecoded()
    request = MetadataRequest(["orders"], decoded=kept)
    first, second = (read(request, "MetadataResponse", 12) for _ in range(2))
    assert first == second == read(MetadataRequest(["orders"]), "MetadataResponse", 12)
    assert first.topics is second.topics
    assert read(MetadataRequest(["other"], decoded=kept), "MetadataResponse", 12).topics is not first.topics

"""The decoder by hand reads what Kafka's generated protocol writes, in every version, and shares values."""

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.admin import DescribeConfigsResponse

from runtime.kafka.protocol.config_entries import DEFAULT, DYNAMIC_TOPIC, Decoder

_THROTTLE = 4  # bytes, before the resources


@dataclass(frozen=True)
class Value:
    value: str | None
    source: int
    sensitive: bool
    read_only: bool


Result = DescribeConfigsResponse.DescribeConfigsResult
Entry = Result.DescribeConfigsResourceResult
Synonym = Entry.DescribeConfigsSynonym

words = st.text(max_size=200)
entries = st.builds(
    lambda name, value, read_only, source, sensitive, synonyms: Entry(
        name=name,
        value=value,
        read_only=read_only,
        config_source=source,
        is_sensitive=sensitive,
        synonyms=[Synonym(name="s", value=text, source=5) for text in synonyms],
        config_type=2,
        documentation=None,
    ),
    words,
    st.none() | words,
    st.booleans(),
    st.integers(1, 6),
    st.booleans(),
    st.lists(st.none() | words, max_size=2),
)
results = st.builds(
    lambda name, code, message, configs: Result(
        error_code=code, error_message=message, resource_type=2, resource_name=name, configs=configs
    ),
    words,
    st.integers(-1, 90),
    st.none() | words,
    st.lists(entries, max_size=5, unique_by=lambda entry: entry.name),
)


def encoded(found: list[Any], version: int) -> memoryview:
    answer = DescribeConfigsResponse(throttle_time_ms=0, results=found, version=version)
    return memoryview(answer.encode(header=False))[_THROTTLE:]


@given(st.lists(results, max_size=4), st.sampled_from([1, 2, 3, 4]))
def test_it_reads_what_the_protocol_writes(found: list[Any], version: int) -> None:
    decoded = Decoder(Value).decode(encoded(found, version), version, lambda name: lambda key, explicit: True)
    assert [(one.name, one.error, one.message) for one in decoded] == [
        (one.resource_name, one.error_code, one.error_message) for one in found
    ]
    for mine, theirs in zip(decoded, found, strict=True):
        assert {
            key: (value.value, value.read_only, value.sensitive) for key, value in mine.config.items()
        } == {entry.name: (entry.value, entry.read_only, entry.is_sensitive) for entry in theirs.configs}


def one_topic(name: str) -> Any:
    config = [
        Entry(name=key, value=value, read_only=False, config_source=source, is_sensitive=False, synonyms=[])
        for key, value, source in (("retention.ms", "1", 1), ("segment.ms", "2", 5), ("flush.ms", "3", 4))
    ]
    return Result(error_code=0, error_message=None, resource_type=2, resource_name=name, configs=config)


@pytest.mark.parametrize(
    ("wants", "keys"),
    [
        (lambda key, explicit: explicit, ["retention.ms"]),
        (lambda key, explicit: explicit or key == "flush.ms", ["retention.ms", "flush.ms"]),
        (lambda key, explicit: False, []),
    ],
)
def test_what_nobody_asked_for_is_not_kept(wants: Any, keys: list[str]) -> None:
    (only,) = Decoder(Value).decode(encoded([one_topic("a")], 4), 4, lambda name: wants)
    assert list(only.config) == keys


def test_the_source_of_a_value_is_told_and_equal_values_are_one_object() -> None:
    first, second = Decoder(Value).decode(
        encoded([one_topic("a"), one_topic("b")], 4), 4, lambda name: lambda key, explicit: True
    )
    assert [value.source for value in first.config.values()] == [
        DYNAMIC_TOPIC,
        DEFAULT,
        4,
    ]
    assert first.config["segment.ms"] is second.config["segment.ms"]

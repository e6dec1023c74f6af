"""Configs are read as another client writes them, in every version, and equal entries are shared."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.admin import DescribeConfigsResponse

from runtime.kafka.protocol.configs import (
    DEFAULT,
    DYNAMIC_TOPIC,
    TOPIC,
    ConfigEntry,
    DescribeConfigsRequest,
    Described,
)
from tests.runtime.kafka.protocol.golden import answered

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


def decoded(found: list[Any], version: int) -> Sequence[Described]:
    response = DescribeConfigsResponse(throttle_time_ms=0, results=found, version=version)
    described: Sequence[Described] = answered(
        DescribeConfigsRequest(TOPIC, []), version, response.encode(header=False)
    )
    return described


@given(st.lists(results, max_size=4), st.sampled_from([1, 2, 3, 4]))
def test_it_reads_what_the_protocol_writes(found: list[Any], version: int) -> None:
    described = decoded(found, version)
    assert [(resource.name, resource.error, resource.message) for resource in described] == [
        (resource.resource_name, resource.error_code, resource.error_message) for resource in found
    ]
    for mine, theirs in zip(described, found, strict=True):
        assert list(mine.entries) == [
            ConfigEntry(entry.name, entry.value, entry.read_only, entry.config_source, entry.is_sensitive)
            for entry in theirs.configs
        ]


def one_topic(name: str) -> Any:
    config = [
        Entry(name=key, value=value, read_only=False, config_source=source, is_sensitive=False, synonyms=[])
        for key, value, source in (("retention.ms", "1", 1), ("segment.ms", "2", 5), ("flush.ms", "3", 4))
    ]
    return Result(error_code=0, error_message=None, resource_type=2, resource_name=name, configs=config)


def test_the_source_of_a_value_is_read_and_equal_entries_are_one_object() -> None:
    first, second = decoded([one_topic("a"), one_topic("b")], 4)
    assert [entry.source for entry in first.entries] == [DYNAMIC_TOPIC, DEFAULT, 4]
    assert [entry.key for entry in first.entries if entry.explicit] == ["retention.ms"]
    assert first.entries[1] is second.entries[1]

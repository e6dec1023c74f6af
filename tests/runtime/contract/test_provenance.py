"""The header `__repl`: every hop of a record, in order, and nothing of what others keep under its name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.contract.records.provenance import (
    HEADER,
    ClusterPartition,
    ClusterTopic,
    Origin,
    constant_part,
    decode,
    encode,
    offset_part,
    origins,
)

BORN = Origin("4L6g3nShT-eMCtK--X86sw", "orders", 3, 1 << 40, 1_700_000_000_123)
HOPPED = Origin("dc2-id", "orders", 0, 7, 1_700_000_000_999)

names = st.text(max_size=60)
int64s = st.integers(-(2**63), 2**63 - 1)


@given(st.builds(Origin, names, names, st.integers(0, 2**31 - 1), int64s, int64s))
def test_what_is_written_is_read(origin: Origin):
    assert decode(encode(origin)) == origin


def test_all_but_the_offset_is_the_same_for_a_batch():
    place = ClusterPartition(BORN.cluster, BORN.topic, BORN.partition)
    assert encode(BORN) == constant_part(place, BORN.copied_at) + offset_part(BORN.offset)


def test_it_is_small():
    assert len(encode(BORN)) == 1 + 1 + 22 + 1 + 6 + 4 + 8 + 8


def test_hops_in_the_order_they_were_made():
    headers = [("trace", b"1"), (HEADER, encode(BORN)), ("x", None), (HEADER, encode(HOPPED))]
    assert origins(headers) == (BORN, HOPPED)
    assert origins(headers)[0].home == ClusterTopic("4L6g3nShT-eMCtK--X86sw", "orders")


@pytest.mark.parametrize("headers", [None, [], [("other", encode(BORN))]])
def test_a_record_born_here_has_none(headers):
    assert origins(headers) == ()


@pytest.mark.parametrize(
    "value", [None, b"", b"\x01", b"\x01\x05abc", b"true", b'{"from": "elsewhere, far away"}', b"\x00" * 99]
)
def test_what_others_keep_under_the_name_is_no_origin(value):
    assert origins([(HEADER, value)]) == ()


@given(st.binary(max_size=80))
def test_any_bytes_are_read_without_harm(value: bytes):
    origin = decode(value)
    assert origin is None or encode(origin)[1:] == value[1 : len(encode(origin))]


def test_a_later_version_is_read_as_far_as_it_is_known():
    assert decode(b"\x02" + encode(BORN)[1:] + b"more") == BORN


def test_names_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="longer than 255 bytes"):
        encode(BORN._replace(cluster="ü" * 200))

"""This module reads many partitions or groups, each part from the broker that has it.

Requests for many partitions or to a coordinator are retried on temporary errors. The offsets of many groups
are read and committed in few requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar, cast

from msgspec import Struct, field

from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.cluster import CONTROL, KafkaCluster
from runtime.kafka.errors import (
    AuthenticationFailed,
    BrokerError,
    ConnectionFailure,
    ErrorCode,
    Unsupported,
    WireError,
)
from runtime.kafka.leaders import DEFAULT_S, by_leader
from runtime.kafka.protocol.configs import TOPIC, DecodedConfigs, DescribeConfigsRequest, Described
from runtime.kafka.protocol.fetch import EpochEnd, Isolation
from runtime.kafka.protocol.groups import (
    MANY_GROUPS,
    CommittedOffset,
    DecodedOffsets,
    ListedGroup,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    Offsets,
)
from runtime.kafka.protocol.offsets import (
    EARLIEST,
    LATEST,
    EpochEndsRequest,
    ListedOffset,
    ListOffsetsRequest,
)
from runtime.kafka.protocol.request import Request
from runtime.kafka.protocol.share_groups import (
    AlterShareOffsetsRequest,
    DescribeShareOffsetsRequest,
)
from runtime.kafka.protocol.transactions import (
    CoordinatorKind,
    DescribeProducersRequest,
    ListTransactionsRequest,
    Producers,
)
from runtime.kafka.timing import in_time, jittered

R = TypeVar("R")

_MOVED = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})
_LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
_CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
_AT_ONCE_WHILE_CONCURRENT = 3  # requests that are sent again without a pause


class Coordinated(Protocol):
    """This protocol is what a request to a coordinator needs of a `KafkaCluster`."""

    async def coordinator(self, kind: CoordinatorKind, key: str) -> int: ...

    def forget_coordinator(self, kind: CoordinatorKind, key: str) -> None: ...

    async def call(self, node: int, request: Request[R], purpose: str, within: float | None) -> R: ...


async def list_offsets(
    cluster: KafkaCluster,
    questions: Mapping[TopicPartition, int],
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
    within: float = DEFAULT_S,
) -> dict[TopicPartition, ListedOffset | ErrorCode]:
    """Lists offsets; each question is a timestamp in ms, or LATEST, EARLIEST, MAX_TIMESTAMP."""
    times = frozenset(questions.values())
    # Questions about starts and about ends do not wait for each other. A cluster keeps each kind, so a kind
    # holds no timestamp.
    kind = (ListOffsetsRequest, isolation, times if max(times, default=0) < 0 else None)
    return await by_leader(cluster, questions, lambda some: ListOffsetsRequest(isolation, some), kind, within)


async def known_offsets(
    cluster: KafkaCluster,
    partitions: Collection[TopicPartition],
    at: int,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
    within: float = DEFAULT_S,
) -> dict[TopicPartition, int]:
    """Lists the offsets of those partitions whose leaders answer; `at` is LATEST or EARLIEST."""
    if not partitions:
        return {}
    answers = await list_offsets(cluster, dict.fromkeys(partitions, at), isolation, within)
    return {key: answer.offset for key, answer in answers.items() if isinstance(answer, ListedOffset)}


async def log_ends(
    cluster: KafkaCluster,
    expected: Mapping[TopicPartition, int],
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
    within: float = DEFAULT_S,
) -> dict[TopicPartition, ListedOffset | ErrorCode]:
    """Lists the end of each log, and lists it again where it is below the expected one.

    A leader answers OFFSET_NOT_AVAILABLE as long as its high watermark is below the start of its epoch
    (KIP-207). It reads the high watermark before it compares it, so a follower that fetches in between makes
    one answer too low. The next one is right.
    """
    ends = await list_offsets(cluster, dict.fromkeys(expected, LATEST), isolation, within)
    shorter = [at for at, end in ends.items() if isinstance(end, ListedOffset) and end.offset < expected[at]]
    if shorter:
        ends |= await list_offsets(cluster, dict.fromkeys(shorter, LATEST), isolation, within)
    return ends


async def offsets_of(
    cluster: KafkaCluster,
    questions: Mapping[TopicPartition, int],
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
    within: float = DEFAULT_S,
) -> dict[TopicPartition, int]:
    """Lists offsets where every one is needed: raises a BrokerError for the first partition without one."""
    if not questions:
        return {}
    offsets: dict[TopicPartition, int] = {}
    for at, answer in (await list_offsets(cluster, questions, isolation, within)).items():
        if not isinstance(answer, ListedOffset):
            raise BrokerError(ErrorCode(answer), f"asking about {at}")
        offsets[at] = answer.offset
    return offsets


async def log_start(cluster: KafkaCluster, at: TopicPartition, within: float = DEFAULT_S) -> int:
    """Returns the partition's log start offset. Raises WireError.

    A fetch that fails with OFFSET_OUT_OF_RANGE carries -1 in its place, so only ListOffsets shows whether
    retention, or a request to delete records, has passed the requested offset.
    """
    return (await offsets_of(cluster, {at: EARLIEST}, within=within))[at]


async def epoch_ends(
    cluster: KafkaCluster, leader_epochs: Mapping[TopicPartition, int], within: float
) -> dict[TopicPartition, EpochEnd | ErrorCode]:
    """Returns the end offset of a leader epoch of each partition."""
    return await by_leader(cluster, leader_epochs, EpochEndsRequest, EpochEndsRequest, within)


async def active_producers(
    cluster: KafkaCluster, partitions: list[TopicPartition], within: float = DEFAULT_S
) -> dict[TopicPartition, Producers | ErrorCode]:
    """Returns each partition's producers and when their open transactions started, to find hung ones."""
    wanted = dict.fromkeys(partitions, None)
    kind = DescribeProducersRequest
    return await by_leader(cluster, wanted, lambda some: DescribeProducersRequest(list(some)), kind, within)


async def transactional_ids(
    cluster: KafkaCluster, producer_ids: Collection[int] | None = None, within: float | None = None
) -> tuple[dict[int, str], dict[int, str]]:
    """Returns the transactional ids of these producer ids, or of all, and why a broker did not list its own.

    Each broker lists the transactions that it coordinates, and only those that this client may describe.
    """
    ids: dict[int, str] = {}
    failed: dict[int, str] = {}
    request = ListTransactionsRequest((), sorted(producer_ids or ()))
    for node in list(cluster.brokers) if producer_ids is None or producer_ids else ():
        try:
            listed = await cluster.call(node, request, within=within)
        except WireError as error:
            failed[node] = str(error)
            continue
        if isinstance(listed, ErrorCode):
            failed[node] = listed.name
        else:
            ids.update((transaction.producer_id, transaction.transactional_id) for transaction in listed)
    return ids, failed


async def topic_configs(
    cluster: KafkaCluster,
    topics: Sequence[str],
    keys: Sequence[str] | None = None,
    decoded: DecodedConfigs | None = None,
) -> AsyncIterator[Described]:
    """Yields the configs of topics, or these keys of them, some topics in a request. Raises WireError.

    With `decoded`, those of a response that a broker repeats are the same objects.
    """
    for some in in_parts(topics, _TOPICS_AT_ONCE):
        for described in await cluster.ask_any(DescribeConfigsRequest(TOPIC, some, keys, decoded)):
            yield described


def error_of(result: object) -> ErrorCode:
    """Returns the error of a coordinator's result, or the first error among its partitions.

    A coordinator that refuses one partition answers OPERATION_NOT_ATTEMPTED for the others.
    """
    if isinstance(result, ErrorCode):
        return result
    values = result.values() if isinstance(result, Mapping) else ()
    codes = {code for code in values if isinstance(code, ErrorCode) and code}
    return next(iter(codes - {ErrorCode.OPERATION_NOT_ATTEMPTED} or codes), ErrorCode.NONE)


async def coordinated(
    cluster: Coordinated,
    kind: CoordinatorKind,
    key: str,
    request: Request[R],
    *,
    within: float,
    resend: bool,
    purpose: str = CONTROL,
) -> R:
    """Sends a request to the coordinator and returns its result.

    Temporary errors (the coordinator moves, loads, or still writes the last markers) are retried until the
    time is over; then the last response is returned. Without `resend`, a request whose response was lost is
    never sent a second time.

    A temporary error does not say that the request has no effect: a coordinator answers NOT_COORDINATOR and
    COORDINATOR_NOT_AVAILABLE also where its log may have taken the request. So once an attempt may have
    arrived, every ConnectionFailure is `sent`, also if the last attempt could not connect.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    pause, at_once = 0.001, _AT_ONCE_WHILE_CONCURRENT
    arrived = False
    while True:
        remaining = max(0.001, deadline - loop.time())
        try:
            node = await in_time(cluster.coordinator(kind, key), remaining, f"looking for {key}")
            response = await cluster.call(node, request, purpose, remaining)
        except ConnectionFailure as failure:
            cluster.forget_coordinator(kind, key)
            arrived = arrived or failure.sent
            if (failure.sent and not resend) or loop.time() + pause >= deadline:
                if arrived and not failure.sent:
                    raise failure.after_another_attempt() from failure
                raise
            pause = max(pause, 0.05)
        except BrokerError as failure:
            if not failure.code.retriable or loop.time() + pause >= deadline:
                raise
            pause = max(pause, 0.02)
        else:
            arrived = True
            code = error_of(response)
            if code in _MOVED:
                cluster.forget_coordinator(kind, key)
            normal = code in _MOVED or code is _LOADING or code is _CONCURRENT
            if not normal or loop.time() + pause >= deadline:
                return response
            if code is _CONCURRENT and at_once:  # Markers are written in about the time of a request.
                at_once -= 1
                continue
            pause = min(pause, 0.02) if code is _CONCURRENT else max(pause, 0.02)
        await asyncio.sleep(jittered(pause))
        pause = min(1.0, pause * 1.5)


async def offset_commit(
    cluster: KafkaCluster, group: str, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, ErrorCode]:
    """Commits without being a member of the group, and without leader epochs."""
    request = OffsetCommitRequest(group, {key: CommittedOffset(offset) for key, offset in offsets.items()})
    errors = await coordinated(cluster, CoordinatorKind.GROUP, group, request, within=DEFAULT_S, resend=True)
    return dict(errors)


T = TypeVar("T")
Committed = Mapping[TopicPartition, CommittedOffset]

PURPOSE = "groups"
NO_MEMBERS = frozenset({"", "Empty", "Dead"})
_AT_ONCE = 100  # groups in one request
_TOPICS_AT_ONCE = 500
_LANES = 8  # connections for commits, at the most
_PER_LANE = 16
_WITHIN_S = 10.0
_ATTEMPTS = 4
_PAUSE_S = 0.1
_LOADS_WITHIN_S = 3.0
SHARE = "share"  # groups of this kind have start offsets in place of committed ones


class Read(Struct, frozen=True):
    """Holds the committed offsets by group, and in `failed` the reasons by group."""

    offsets: dict[str, Committed] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


class Listed(Struct, frozen=True):
    """Holds the groups with committed offsets, and the share groups.

    `missing` has the reason of each broker whose groups are not included.
    """

    groups: dict[str, ListedGroup] = field(default_factory=dict)
    share: dict[str, ListedGroup] = field(default_factory=dict)
    missing: dict[int, str] = field(default_factory=dict)

    @property
    def every(self) -> dict[str, ListedGroup]:
        """All groups that were listed, by name."""
        return {**self.groups, **self.share}

    @property
    def unlisted(self) -> dict[str, str]:
        """The reasons of `missing`, by the brokers as notes name them."""
        return {f"broker {node}": why for node, why in sorted(self.missing.items())}


async def list_groups(cluster: KafkaCluster, within: float = _WITHIN_S) -> Listed:
    """Lists the groups of every broker. Raises WireError if no broker answers.

    A broker that still loads groups, as after its start, is asked again for a few seconds.
    """
    listed, coordinators = Listed(), dict[str, int]()
    nodes = list(cluster.brokers)
    asking = (_groups_of(cluster, node, within) for node in nodes)
    for node, answer in zip(nodes, await asyncio.gather(*asking, return_exceptions=True), strict=True):
        if isinstance(answer, ConnectionFailure | AuthenticationFailed):
            listed.missing[node] = str(answer)
        elif isinstance(answer, BaseException):
            raise answer
        elif isinstance(answer, ErrorCode):
            listed.missing[node] = answer.name
        else:
            for group in answer:
                (listed.share if group.kind == SHARE else listed.groups)[group.name] = group
                coordinators[group.name] = node
    # Groups come and go, as those of console consumers: what is known of them must not grow for ever (R8).
    cluster.know_coordinators(CoordinatorKind.GROUP, coordinators, complete=not listed.missing)
    if nodes and len(listed.missing) == len(nodes):
        raise BrokerError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, "groups", "; ".join(set(listed.missing.values()))
        )
    return listed


async def _groups_of(cluster: KafkaCluster, node: int, within: float) -> Sequence[ListedGroup] | ErrorCode:
    """Returns the groups of a broker, or the error that it answers."""
    loop = asyncio.get_running_loop()
    until = loop.time() + min(within, _LOADS_WITHIN_S)
    while True:
        answer = await cluster.call(node, ListGroupsRequest(), PURPOSE, within)
        if answer is not _LOADING or loop.time() >= until:
            return answer
        await asyncio.sleep(jittered(_PAUSE_S))


async def committed_by(
    cluster: KafkaCluster,
    groups: Iterable[str],
    within: float = _WITHIN_S,
    read: Read | None = None,
    *,
    share: Collection[str] = (),
    decoded: DecodedOffsets | None = None,
) -> Read:
    """Returns every committed offset of these groups. Temporary errors are retried.

    Of the groups in `share` it returns the start offsets. `read` is filled as responses arrive, for
    callers with a deadline; `within` bounds one response of one broker. With `decoded`, the offsets of a
    response that a broker repeats are the same objects.
    """
    read = read if read is not None else Read()
    left = list(groups)
    for attempt in range(_ATTEMPTS):
        if attempt:
            await asyncio.sleep(_PAUSE_S * 2**attempt)
        again: list[str] = []
        for some in in_parts(left, _AT_ONCE):
            by_node, unplaced = await _placed(cluster, some, read)
            again += unplaced
            # No broker waits for another's response.
            fetching = (
                _fetch(cluster, node, of, read, within, share, decoded) for node, of in by_node.items()
            )
            for more in await asyncio.gather(*fetching):
                again += more
        left = again
        if not left:
            break
    return read


async def _fetch(
    cluster: KafkaCluster,
    node: int,
    groups: list[str],
    read: Read,
    within: float,
    share: Collection[str],
    decoded: DecodedOffsets | None,
) -> list[str]:
    """Stores the offsets in `read` and returns the groups to retry."""
    shared = [group for group in groups if group in share]
    others = [group for group in groups if group not in share]
    answers: dict[str, Offsets | ErrorCode] = {}
    try:
        if others:
            answers |= await _ask_for_groups(cluster, node, others, within, decoded)
        if shared:
            answers |= await _ask_for_share_groups(cluster, node, shared, within)
    except (ConnectionFailure, AuthenticationFailed) as error:
        for group in groups:
            read.failed[group] = str(error)
            cluster.forget_coordinator(CoordinatorKind.GROUP, group)
        return groups
    again = []
    for group, offsets in answers.items():
        if isinstance(offsets, ErrorCode):
            read.failed[group] = offsets.name
            if offsets.retriable:
                again.append(group)
                cluster.forget_coordinator(CoordinatorKind.GROUP, group)
        else:
            read.failed.pop(group, None)
            known = {
                at: committed
                for at, committed in offsets.items()
                if isinstance(committed, CommittedOffset) and committed.offset >= 0
            }
            read.offsets[group] = known if len(known) < len(offsets) else cast("Committed", offsets)
    return again


async def _ask_for_groups(
    cluster: KafkaCluster, node: int, groups: list[str], within: float, decoded: DecodedOffsets | None
) -> Mapping[str, Offsets | ErrorCode]:
    """Reads all groups in one request, or in one request each where the broker is older than Kafka 3.0."""
    connection = await cluster.connection(node, PURPOSE, within)
    if connection.version_of(OffsetFetchRequest(groups)) >= MANY_GROUPS:
        return await connection.call(OffsetFetchRequest(groups, decoded=decoded), within)
    await connection.ready()
    started = [connection.start(OffsetFetchRequest([group], decoded=decoded), within) for group in groups]
    offsets: dict[str, Offsets | ErrorCode] = {}
    for response in await asyncio.gather(*started):
        offsets.update(response)
    return offsets


async def _ask_for_share_groups(
    cluster: KafkaCluster, node: int, groups: list[str], within: float
) -> Mapping[str, Offsets | ErrorCode]:
    """Reads the start offsets of share groups; a group that does not exist has none."""
    connection = await cluster.connection(node, PURPOSE, within)
    try:
        described = await connection.call(DescribeShareOffsetsRequest(groups), within)
    except Unsupported:
        return dict.fromkeys(groups, ErrorCode.UNSUPPORTED_VERSION)
    missing = ErrorCode.GROUP_ID_NOT_FOUND
    return {group: {} if starts is missing else starts for group, starts in described.items()}


async def _placed(
    cluster: KafkaCluster, groups: Sequence[str], read: Read
) -> tuple[dict[int, list[str]], list[str]]:
    by_node: dict[int, list[str]] = {}
    again: list[str] = []
    for group, node in (await cluster.coordinators(CoordinatorKind.GROUP, groups)).items():
        if isinstance(node, BrokerError):
            read.failed[group] = str(node)
            if node.code.retriable:
                again.append(group)
        else:
            by_node.setdefault(node, []).append(group)
    return by_node, again


Outcome = Mapping[TopicPartition, ErrorCode] | WireError


async def commit_many(cluster: KafkaCluster, offsets: Mapping[str, Committed]) -> dict[str, Outcome]:
    """Commits without being a member of any of these groups: a broker refuses it while a member is connected.

    A broker handles the requests of one connection one by one, and each commit waits some ms until it is
    appended together with others. So many groups are committed over several connections.
    """
    names = list(offsets)
    for some in in_parts(names, _AT_ONCE):
        await cluster.coordinators(CoordinatorKind.GROUP, some)
    lanes = min(_LANES, 1 + len(names) // _PER_LANE)
    outcomes: dict[str, Outcome] = {}

    async def lane(number: int) -> None:
        for group in names[number::lanes]:
            try:
                outcomes[group] = await _commit(cluster, group, offsets[group], f"{PURPOSE} {number}")
            except WireError as error:
                outcomes[group] = error

    await asyncio.gather(*(lane(number) for number in range(lanes)))
    return outcomes


async def _commit(cluster: KafkaCluster, group: str, offsets: Committed, purpose: str) -> Outcome:
    """Commits without leader epochs, because the source's epochs have no meaning here.

    Of a share group it sets the start offsets. Metadata that are too large for this cluster are left out:
    they are a comment, and the group must not stay behind because of it. Raises WireError.
    """

    async def send(request: Request[R]) -> R:
        return await coordinated(
            cluster,
            CoordinatorKind.GROUP,
            group,
            request,
            within=_WITHIN_S,
            resend=True,
            purpose=purpose,
        )

    if any(committed.of_share_group for committed in offsets.values()):
        starts = {at: committed.offset for at, committed in offsets.items()}
        outcome = await send(AlterShareOffsetsRequest(group, starts))
        return dict.fromkeys(offsets, outcome) if isinstance(outcome, ErrorCode) else outcome
    without_epochs = {
        at: CommittedOffset(committed.offset, -1, committed.metadata) for at, committed in offsets.items()
    }
    codes = await send(OffsetCommitRequest(group, without_epochs))
    too_large = [at for at, code in codes.items() if code is ErrorCode.OFFSET_METADATA_TOO_LARGE]
    if not too_large:
        return codes
    without_metadata = {at: CommittedOffset(offsets[at].offset) for at in too_large}
    return {**codes, **await send(OffsetCommitRequest(group, without_metadata))}


def in_parts(items: Sequence[T], most: int) -> list[Sequence[T]]:
    """Returns the items in parts of at most so many."""
    return [items[start : start + most] for start in range(0, len(items), most)]

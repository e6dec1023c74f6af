"""This module runs one slot in the Python worker of a Spark task, and connects it to the driver."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from runtime.contract.records import control, job_status
from runtime.contract.records.control import Assignment, client_id
from runtime.contract.records.job_status import (
    PartitionState,
    SlotHeartbeat,
    SlotReport,
    StatusKey,
)
from runtime.contract.records.record_values import UnreadableValue
from runtime.contract.spec import naming
from runtime.driver.process import collect_rarely
from runtime.driver.slots.channel import COMMANDS_WAIT_MS, TopicTail, end_of, pause, post
from runtime.driver.slots.membership import PartitionRates
from runtime.driver.slots.ticket import SlotStartRequest
from runtime.kafka.cluster import KafkaCluster, named, opened
from runtime.kafka.errors import WireError
from runtime.kafka.records import InternalRecord
from runtime.slot import log
from runtime.slot.errors import SlotEnd, SlotMustEnd
from runtime.slot.slot import Slot

if TYPE_CHECKING:
    from runtime.sql.evaluator import MakeEvaluator

_POLL_S = 0.1  # for a version that came into force: the driver waits for its acknowledgement
_REPORT_S = 1.0
_LOOKS_AT_START = 10  # at the status between two reports, while a partition starts: apply waits for it
_REPORTED_PER_S = 1_000  # partitions of a slot: the report of a slot with more comes less often
_REPEAT_S = 5.0  # an unchanged report is repeated: its age shows whether the slot is alive
_PAUSE_S = 0.5
_HEARTBEAT_S, _HEARTBEAT_WITHIN_S = 1.0, 3.0
_HEARTBEAT_PURPOSE = "heartbeat"  # they have a connection of their own
_THROTTLE_S = 1.0  # a heartbeat waits no longer for the end of a throttle


async def copy_with_sql(ticket: SlotStartRequest, make: MakeEvaluator) -> SlotEnd:
    """Runs the slot of a ticket with its channel and the evaluator of its transform.

    The slot ends when the query ends, and the query when the slot ends.
    """
    from runtime.sql.columns import keep_freed_memory
    from runtime.sql.transformer import Transformer

    transform = ticket.spec.transform
    assert transform is not None, "run_task copies without a transform"
    collect_rarely()
    keep_freed_memory()
    evaluator = make()
    channel = _ControlChannel(ticket)
    slot = Slot(ticket.spec, ticket.first, None, Transformer(transform, evaluator), channel.read_commands)
    channel.slot = slot
    try:
        return await run_with_channel(slot, channel, evaluator)
    finally:
        await evaluator.close()


async def copy(ticket: SlotStartRequest) -> SlotEnd:
    """Runs the slot of a ticket with its channel."""
    channel = _ControlChannel(ticket)
    channel.slot = slot = Slot(ticket.spec, ticket.first, read_commands=channel.read_commands)
    return await run_with_channel(slot, channel)


class SlotChannel(Protocol):
    """A SlotChannel is the slot's end of the connection to the driver, or to the query that it evaluates."""

    async def run(self) -> None: ...


async def run_with_channel(slot: Slot, *channels: SlotChannel) -> SlotEnd:
    """Runs the slot until it ends.

    The slot fails when its channel fails, because no command would reach it any more, or when its evaluator
    fails.
    """
    channel_task = asyncio.gather(*(channel.run() for channel in channels))
    channel_task.add_done_callback(lambda _: slot.stop())
    try:
        end = await slot.run()
        # The channel never ends by itself: if it is done, the slot was stopped because the channel failed.
        if channel_task.done():
            channel_task.result()
        return end
    except Exception as error:  # noqa: BLE001 - the outermost edge: the driver submits the slot again
        log.log_event("slot_failed", level=logging.ERROR, trace=error, error=str(error))
        return SlotEnd("failed", f"{type(error).__name__}: {error}")
    finally:
        channel_task.cancel()
        await asyncio.gather(channel_task, return_exceptions=True)


async def listen(
    tail: TopicTail, ticket: SlotStartRequest, slot: Slot, on_assignment: Callable[[Assignment], None]
) -> None:
    """Carries out the driver's commands to the slot as they arrive; a record that can't be read is skipped.

    `on_assignment` gets each assignment before the slot does.
    """
    mine = control.slot_key(ticket.spec.job, ticket.spec.slot)
    async for record in tail.records():
        if record.key == mine and record.value is not None:
            try:
                _execute(control.decode_slot_message(record.value), ticket, slot, on_assignment)
            except UnreadableValue as error:
                tail.skipped.add(record.offset, str(error))


def _execute(
    message: control.SlotMessage,
    ticket: SlotStartRequest,
    slot: Slot,
    on_assignment: Callable[[Assignment], None],
) -> None:
    """Carries out one command and ignores commands of another driver, or to an earlier attempt.

    A command to a later attempt stops the slot: it was replaced (R3).
    """
    if message.driver != ticket.driver or message.attempt < ticket.attempt:
        return
    if message.attempt > ticket.attempt:
        slot.stop()
        return
    match message:
        case control.Assign(assignment=assignment):
            on_assignment(assignment)
            slot.assign(assignment)
        case control.StopSlot():
            slot.stop()


class _ControlChannel:
    """The channel of a running slot reads commands and sends heartbeats and reports.

    It retries its failures and never disturbs the copying.
    """

    slot: Slot

    def __init__(self, ticket: SlotStartRequest) -> None:
        self._ticket = ticket
        self._listening: asyncio.Future[TopicTail] = asyncio.get_running_loop().create_future()
        self._newest = ticket.first
        self._takes_away = 0  # the newest version that takes partitions away, which the slot acknowledges
        self._assigned = asyncio.Event()

    async def run(self) -> None:
        """Reads commands, sends heartbeats and reports until cancelled; it reconnects after a WireError."""
        spec = self._ticket.spec
        while True:
            with contextlib.suppress(WireError):
                settings = named(spec.cluster, client_id(spec.job, spec.slot))
                async with await opened(spec.destination, settings, os.environ) as cluster:
                    await asyncio.gather(
                        self._listen(cluster), self._send_heartbeats(cluster), self._report(cluster)
                    )
            await asyncio.sleep(_PAUSE_S)

    async def read_commands(self) -> None:
        """Returns once every command that was written before is carried out.

        Raises WireError, and SlotMustEnd where commands were deleted before the slot read them, or lost.
        """
        commands = await asyncio.shield(self._listening)
        if not await commands.handled(await end_of(commands.cluster, naming.CONTROL)):
            raise SlotMustEnd("commands of the driver were deleted before this slot read them")

    async def _listen(self, cluster: KafkaCluster) -> None:
        offset = self._ticket.control_offset
        tail = TopicTail(cluster, naming.CONTROL, offset, wait_ms=COMMANDS_WAIT_MS)
        if not self._listening.done():
            self._listening.set_result(tail)
        await listen(tail, self._ticket, self.slot, self._note_assignment)

    def _note_assignment(self, assignment: Assignment) -> None:
        if assignment.version <= self._newest.version:
            return
        kept = {partition.key for partition in assignment.partitions}
        if any(partition.key not in kept for partition in self._newest.partitions):
            self._takes_away = assignment.version
        self._newest = assignment
        self._assigned.set()

    async def _send_heartbeats(self, cluster: KafkaCluster) -> None:
        """Sends a heartbeat each second: after some seconds without one, the driver replaces the slot.

        Under a quota a broker reads no more from the connection for as long as the slot's data is too much.
        So a heartbeat that would wait for long goes over a new connection.
        """
        spec = self._ticket.spec
        key = job_status.encode_key(StatusKey("slot_heartbeat", spec.job, spec.slot))
        loop = asyncio.get_running_loop()
        while True:
            throttled_s = 0.0
            for node in cluster.brokers:
                link = cluster.kept(node, _HEARTBEAT_PURPOSE)
                if link is not None and (left_s := link.throttled_until - loop.time()) > _THROTTLE_S:
                    throttled_s = max(throttled_s, left_s)
                    link.drop()
            heartbeat = SlotHeartbeat(self._ticket.driver, self._ticket.attempt, round(1000 * throttled_s))
            record = InternalRecord(key, job_status.encode(heartbeat))
            with contextlib.suppress(WireError):
                await post(cluster, naming.STATUS, [record], _HEARTBEAT_PURPOSE, within=_HEARTBEAT_WITHIN_S)
            await asyncio.sleep(_HEARTBEAT_S)

    async def _report(self, cluster: KafkaCluster) -> None:
        """Sends the slot's status when it changed, and at least every five seconds.

        A changed one is sent after `report_interval_s`, and as soon as the last partition has started. An
        assignment that takes partitions away is acknowledged as soon as it is in force, because the driver
        waits for that. It does not wait where partitions are only added, as in the start of many flows.
        """
        loop = asyncio.get_running_loop()
        key = job_status.encode_key(StatusKey("slot", self._ticket.spec.job, self._ticket.spec.slot))
        rates = PartitionRates()
        sent: SlotReport | None = None
        sent_at = compared_at = -_REPEAT_S
        pause_s = _POLL_S
        while True:
            self._assigned.clear()
            now = loop.time()
            is_awaited = sent is None or (sent.assignment < self._takes_away <= self.slot.assignment_in_force)
            if is_awaited or now - compared_at >= pause_s:  # a status of many partitions takes long to make
                status = self.slot.status(rates.known)
                interval_s = report_interval_s(len(status.partitions))
                starts = any(partition.state is PartitionState.STARTING for partition in status.partitions)
                pause_s = interval_s / _LOOKS_AT_START if starts else interval_s
                is_due = not starts or now - sent_at >= interval_s
                differs = sent is None or (status.flows, status.partitions) != (sent.flows, sent.partitions)
                if is_awaited or now - sent_at >= _REPEAT_S or (is_due and differs):
                    rates.update_if_due(int(now * 1000), status.partitions)
                    report = replace(status, driver=self._ticket.driver, attempt=self._ticket.attempt)
                    record = InternalRecord(key, job_status.encode(report))
                    try:
                        await post(cluster, naming.STATUS, [record])
                    except WireError:
                        await asyncio.sleep(_PAUSE_S)
                        continue
                    sent, sent_at = status, loop.time()
                compared_at = loop.time()
            is_acknowledged = sent is not None and sent.assignment >= self._takes_away
            await pause(pause_s if is_acknowledged else _POLL_S, self._assigned)
            if self._assigned.is_set():
                pause_s = min(pause_s, report_interval_s(len(self._newest.partitions)) / _LOOKS_AT_START)


def report_interval_s(partitions: int) -> float:
    """Returns the least time between two reports of a slot whose assignment stays the same."""
    return min(max(_REPORT_S, partitions / _REPORTED_PER_S), _REPEAT_S)

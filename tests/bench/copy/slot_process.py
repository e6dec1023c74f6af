"""Runs slots from files, one process each: python -m tests.bench.copy.slot_process [--profile=OUT] FILE …"""

import asyncio
import cProfile
import multiprocessing
import signal
import sys
import time
from pathlib import Path

import msgspec
import uvloop

from runtime.slot.slot import Slot
from tests.bench.copy.slots import Work

_PROFILE = "--profile="


def copy(file: str, profile: str | None) -> None:
    work = msgspec.json.decode(Path(file).read_bytes(), type=Work)

    async def run() -> None:
        slot = Slot(work.spec, work.assignment)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, slot.stop)
        print(await slot.run(), flush=True)

    # CPU time: what the machine does besides is not the slot's.
    profiler = cProfile.Profile(time.thread_time) if profile else None
    if profiler is not None:
        profiler.enable()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())
    if profiler is not None and profile is not None:
        profiler.dump_stats(profile)


def main(arguments: list[str]) -> None:
    profile = next((one.removeprefix(_PROFILE) for one in arguments if one.startswith(_PROFILE)), None)
    files = [one for one in arguments if not one.startswith(_PROFILE)]
    others = [multiprocessing.Process(target=copy, args=(file, None), daemon=True) for file in files[1:]]
    for other in others:
        other.start()
    copy(files[0], profile)
    for other in others:
        if other.pid is not None:
            other.terminate()
        other.join()


if __name__ == "__main__":
    main(sys.argv[1:])

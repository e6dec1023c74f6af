"""A process is known by its birth, so a number that is used again is never signalled."""

import os
import signal
import subprocess
import sys

from msgspec.structs import replace

from runtime.launch import processes
from tests.records import wait_for

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


def sleeping(**environ: str) -> subprocess.Popen[bytes]:
    """In the moment of its exec a process shows neither words nor environment."""
    child = subprocess.Popen(SLEEP, env={**os.environ, **environ})
    wait_for(lambda: "-c" in processes.words(child.pid))
    return child


def test_who_is_who():
    me = processes.identify(os.getpid())
    assert me is not None
    assert processes.alive(me)
    assert not processes.alive(replace(me, born=me.born + 1))
    assert not processes.alive(replace(me, boot="another"))
    assert not processes.alive(None)


def test_only_the_one_that_was_meant_is_signalled():
    child = sleeping()
    try:
        found = processes.identify(child.pid)
        assert found is not None
        assert child.pid in processes.children(os.getpid())
        assert processes.words(child.pid)[1] == "-c"
        assert not processes.send(replace(found, born=found.born - 1), signal.SIGKILL)
        assert child.poll() is None
        assert processes.send(found, signal.SIGKILL)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert processes.identify(child.pid) is None  # dead, and not yet taken note of
        child.wait()
        assert not processes.send(found, signal.SIGKILL)
    finally:
        child.kill()
        child.wait()


def test_all_that_carry_a_mark_go_and_nobody_else():
    marked = [sleeping(A_MARK="17") for _ in range(2)]
    other = sleeping(A_MARK="170")
    try:
        assert processes.sweep("A_MARK=17")
        assert [one.wait(60) for one in marked] == [-9, -9]
        assert other.poll() is None
    finally:
        for one in [*marked, other]:
            one.kill()
            one.wait()

"""A supervisor looks after its job, whoever dies: real processes; only Spark is one that starts at once."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from runtime.contract.launching import LaunchError, LaunchState
from runtime.launch import processes
from runtime.launch.folder import JobFolder, Supervision
from runtime.launch.processes import ProcessIdentity
from runtime.launch.supervision.supervised import SupervisedLauncher
from runtime.launch.supervision.supervisor import marked
from tests.fakes.spark import FakeSpark
from tests.records import wait_for
from tests.runtime.launch.specs import spec_of

pytestmark = pytest.mark.slow

SPEC = spec_of(client={"sasl.password": {"env": "A_SECRET"}})


@pytest.fixture
def spark(tmp_path: Path) -> FakeSpark:
    return FakeSpark(tmp_path)


@pytest.fixture
def launcher(tmp_path: Path, spark: FakeSpark) -> Iterator[SupervisedLauncher]:
    environ = {**os.environ, "SPARK_HOME": str(spark.home), "A_SECRET": "hunter2"}
    made = SupervisedLauncher(tmp_path / "home", environ)
    yield made
    made.stop("dc2", 0)


def state(launcher: SupervisedLauncher) -> Supervision:
    found = JobFolder(launcher.home, "dc2").supervision()
    assert found is not None
    return found


def all_of(launcher: SupervisedLauncher) -> list[ProcessIdentity]:
    now = state(launcher)
    own = [one for one in (now.supervisor, now.watchman) if one is not None]
    return own + (list(processes.marked(marked(now.mark))) if now.mark else [])


def kill(process: ProcessIdentity | None) -> None:
    assert process is not None
    assert processes.send(process, signal.SIGKILL)


def again(launcher: SupervisedLauncher, attempt: int) -> Callable[[], bool]:
    """It runs, and not for the first time."""
    return lambda: state(launcher).attempt > attempt and state(launcher).phase == "running"


def test_launched_found_killed_and_back_until_it_is_stopped(launcher: SupervisedLauncher):
    handle = launcher.launch(SPEC)
    first = state(launcher)
    assert handle.where.startswith(f"pid {first.supervisor.pid if first.supervisor else 0} on ")
    assert launcher.find("dc2").state is LaunchState.RUNNING
    assert os.getsid(first.supervisor.pid if first.supervisor else 0) != os.getsid(0)  # no terminal's
    with pytest.raises(LaunchError, match="runs already"):
        launcher.launch(SPEC)

    gone = all_of(launcher)
    assert len(gone) == 4  # supervisor, watchman, spark-submit, driver
    kill(first.application)
    wait_for(again(launcher, 1))

    gone += all_of(launcher)
    watchman = state(launcher).watchman
    kill(watchman)
    wait_for(lambda: state(launcher).watchman != watchman and processes.alive(state(launcher).watchman))
    assert state(launcher).attempt == 2  # the job was not disturbed

    gone += all_of(launcher)
    kill(state(launcher).supervisor)
    wait_for(again(launcher, 2))
    now = state(launcher)
    assert now.supervisor != first.supervisor
    assert launcher.find("dc2").state is LaunchState.RUNNING
    # What a secret's reference names has come along through every new start.
    environ = Path(f"/proc/{now.application.pid if now.application else 0}/environ").read_bytes()
    assert b"A_SECRET=hunter2" in environ
    with pytest.raises(LaunchError, match="runs already"):
        launcher.launch(SPEC)

    gone += all_of(launcher)
    launcher.stop("dc2", 60)
    assert not [process for process in gone if processes.alive(process)]
    found = launcher.find("dc2")
    assert (found.state, found.why) == (LaunchState.ENDED, "stopped")
    assert "goodbye" in launcher.tail("dc2", 5)
    launcher.stop("dc2", 60)  # gone already is success


def test_supervisor_and_watchman_killed_together_leave_nobody_and_it_can_be_launched_again(
    launcher: SupervisedLauncher,
):
    launcher.launch(SPEC)
    gone = all_of(launcher)
    now = state(launcher)
    assert now.supervisor is not None
    os.kill(now.supervisor.pid, signal.SIGSTOP)  # together: else it would start another watchman in between
    stopped = psutil.Process(now.supervisor.pid)
    wait_for(lambda: stopped.status() == psutil.STATUS_STOPPED)
    kill(now.watchman)
    kill(now.supervisor)
    wait_for(lambda: not [process for process in gone if processes.alive(process)])
    found = launcher.find("dc2")
    assert found.state is LaunchState.ENDED
    assert "were killed" in found.why
    launcher.launch(SPEC)
    assert launcher.find("dc2").state is LaunchState.RUNNING


def test_a_driver_that_does_not_hear_is_killed_when_its_time_is_over(
    launcher: SupervisedLauncher, spark: FakeSpark
):
    spark.drivers("deaf")
    launcher.launch(SPEC)
    gone = all_of(launcher)
    launcher.stop("dc2", 0.5)
    assert not [process for process in gone if processes.alive(process)]
    assert launcher.find("dc2").state is LaunchState.ENDED


def test_one_that_dies_at_its_start_is_an_error_with_its_last_words(
    launcher: SupervisedLauncher, spark: FakeSpark
):
    spark.drivers("end 1 0.2")
    with pytest.raises(LaunchError, match="did not start") as caught:
        launcher.launch(SPEC)
    assert "the driver is told to end 1 0.2" in caught.value.log
    assert launcher.find("dc2").state is LaunchState.ENDED

    spark.drivers("end 75 0.2")  # R10: not tried again, and not at a start only
    with pytest.raises(LaunchError, match="fenced"):
        launcher.launch(SPEC)


def test_one_that_crashes_is_restarted_and_one_that_is_fenced_is_not(
    launcher: SupervisedLauncher, spark: FakeSpark
):
    spark.drivers("turn 1")
    launcher.launch(SPEC)
    spark.drivers("end 75 0")
    wait_for(lambda: launcher.find("dc2").state is LaunchState.ENDED)
    found = launcher.find("dc2")
    assert (found.why, state(launcher).attempt) == ("fenced", 2)


def test_of_two_launches_at_once_one_is_refused(launcher: SupervisedLauncher, tmp_path: Path):
    program = (
        "import sys; from pathlib import Path\n"
        "from runtime.launch.supervision.supervised import SupervisedLauncher\n"
        "from runtime.contract.launching import LaunchError\n"
        "from tests.runtime.launch.test_supervisor import SPEC\n"
        "try: SupervisedLauncher(Path(sys.argv[1])).launch(SPEC)\n"
        "except LaunchError as error: print(error)\n"
    )
    command = [sys.executable, "-c", program, str(launcher.home)]
    here = Path(__file__).parents[3]
    two = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=launcher.environ, cwd=here)
        for _ in range(2)
    ]
    said = sorted(one.communicate(timeout=180)[0] for one in two)
    assert said[0] == ""
    assert "runs already" in said[1]


def test_what_was_never_started_here_is_unknown(launcher: SupervisedLauncher):
    assert launcher.find("dc2").state is LaunchState.UNKNOWN
    launcher.stop("dc2", 1)
    launcher.update(SPEC)
    assert JobFolder(launcher.home, "dc2").read_spec() == SPEC
    assert launcher.tail("dc2") == []


def test_one_that_another_machine_looks_after_is_left_to_it(launcher: SupervisedLauncher):
    folder = JobFolder(launcher.home, "dc2")
    folder.make()
    me = processes.identify(os.getpid())
    folder.note(Supervision(host="elsewhere", phase="running", supervisor=me, since_ms=int(time.time())))
    assert launcher.find("dc2").why == "started on elsewhere: look there"
    assert launcher.stop("dc2", 1) == ""
    supervision = folder.supervision()
    assert supervision is not None
    assert supervision.phase == "running"
    with pytest.raises(LaunchError, match="elsewhere"):
        launcher.launch(SPEC)
    folder.state.unlink()


def test_a_standalone_cluster_without_its_secret_gets_no_application(tmp_path: Path, spark: FakeSpark):
    """Also at a later start: the job waits, says what is missing, and runs again once it is there."""
    secret = tmp_path / "spark-defaults.conf"
    secret.write_text("spark.authenticate.secret x")
    environ = {**os.environ, "SPARK_HOME": str(spark.home), "SPARK_CONF_DIR": str(tmp_path)}
    launcher = SupervisedLauncher(tmp_path / "home", environ)
    try:
        launcher.launch(spec_of(launcher="standalone", master="spark://h:7077"))
        secret.unlink()
        kill(state(launcher).application)
        wait_for(lambda: any("spark.authenticate.secret is not in" in one for one in launcher.tail("dc2")))
        secret.write_text("spark.authenticate.secret x")
        wait_for(again(launcher, 1))
    finally:
        launcher.stop("dc2", 0)

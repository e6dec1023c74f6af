"""What tests share: real Kafka clusters, started when the first test asks for them, gone with the session.

`lab` is two single-node clusters, dc1 and dc2; `lab_three` one cluster dc1 of three brokers; `lab_sasl` and
`lab_tls` are dc1 and dc2 with security. Tests share them, so every test names its topics, groups and flows
with `fresh`; a test that kills, pauses or stops brokers takes a lab of its own from `own_lab`.

An idle broker costs one to four percent of a core. Therefore the files that share a rare lab run one after
the other, and a shared lab goes down after the last test of the session that uses it."""

import asyncio
import functools
import gc
import inspect
import itertools
import os
import re
import signal
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path

import pytest
import uvloop
from hypothesis import HealthCheck, settings

from runtime.contract.client import secrets
from runtime.lab.cluster import LabClusterSpec, Security
from runtime.lab.lab import Lab
from runtime.launch.processes import sweep
from tests.labs import JVM, running_lab, spec
from tests.processes import TEST_RUN, end_cut_runs, run_of
from tests.spark import class_archive

MakeLab = Callable[..., Lab]

# A shell that starts the tests in the background makes them deaf to Ctrl-C, and so would be every command
# that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The brokers that a command of a test starts get the same options as those that the test starts itself.
os.environ.setdefault("REPL_LAB_JVM", " ".join(JVM))
os.environ.setdefault("REPL_SPARK_DEADLINE", "600")  # tests share the machine
os.environ["TERM"] = "xterm"  # on a dumb terminal no bar is drawn, and tests look at bars

# How many examples a property test tries: `make fast` and `make long` choose one.
# An example that takes long is no mistake: the machine does other things too.
for profile, examples in (("fast", 10), ("steady", 40), ("thorough", 300)):
    settings.register_profile(
        profile, max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
settings.load_profile("steady")

_LOOP_S = 60  # for a coroutine without brokers
_HANGS_S = 900  # with brokers: many times what the longest takes, for machines with too much to do


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A coroutine runs in an event loop of its own; with brokers, in the kind that jobs use."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    test = pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})
    with_brokers = pyfuncitem.get_closest_marker("integration") is not None
    as_jobs = with_brokers or pyfuncitem.get_closest_marker("uvloop") is not None
    with asyncio.Runner(loop_factory=uvloop.new_event_loop if as_jobs else None) as runner:
        runner.run(asyncio.wait_for(test, _HANGS_S if with_brokers else _LOOP_S))
    return True


# The labs that tests share, the rarest first.
SHARED = ("lab_three", "lab_tls", "lab_sasl", "lab")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nothing that is collected becomes garbage, so Python need not look for it, then or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with Spark come first, because a worker that gets one of them last is waited for.

    Behind them, the files that share a lab stand together, the rarest lab first.
    """
    with_spark = {item.path for item in items if item.get_closest_marker("spark")}
    needed: dict[Path, int] = {}
    for item in items:
        needed[item.path] = min(needed.get(item.path, len(SHARED)), _rarest_lab(item))

    def turn(item: pytest.Item) -> tuple[bool, int]:
        is_common = needed[item.path] >= SHARED.index("lab")
        first = item.path in with_spark and is_common
        return (not first, 0 if first else needed[item.path])

    items.sort(key=turn)
    for item in items:
        if item.get_closest_marker("integration") or item.get_closest_marker("spark"):
            if not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(_HANGS_S))
            if not _is_marked_in(item.path):
                wanted = "pytest.mark.integration or pytest.mark.spark"
                raise pytest.UsageError(
                    f"{item.path} must say {wanted} itself: make integration looks for it"
                )


@functools.cache
def _is_marked_in(path: Path) -> bool:
    return re.search(r"pytest\.mark\.(integration|spark)\b", path.read_text()) is not None


def _shared_labs(item: pytest.Item) -> set[str]:
    """A lab counts as used by a file that names it: parameters and steps ask for it only while they run."""
    return set(SHARED).intersection(_words_of(item.path).union(getattr(item, "fixturenames", ())))


@functools.cache
def _words_of(path: Path) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", path.read_text()))


def _rarest_lab(item: pytest.Item) -> int:
    return min(map(SHARED.index, _shared_labs(item)), default=len(SHARED))


_running_labs = pytest.StashKey[dict[str, Lab]]()
_last_user = pytest.StashKey[dict[str, int]]()
_position = pytest.StashKey[int]()


def pytest_collection_finish(session: pytest.Session) -> None:
    last: dict[str, int] = {}
    for number, item in enumerate(session.items):
        item.stash[_position] = number
        last |= dict.fromkeys(_shared_labs(item), number)
    session.stash[_last_user], session.stash[_running_labs] = last, {}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests run in the collected order, also on the workers of a loadfile run: each gets a part of it."""
    running, last = item.session.stash[_running_labs], item.session.stash[_last_user]
    for name in [name for name in running if last[name] < item.stash[_position]]:
        running.pop(name).down(purge=True)
    if item.get_closest_marker("spark"):
        class_archive.use()


_TREE = Path(__file__).parent.parent
_interrupted = pytest.StashKey[bool]()


def pytest_configure(config: pytest.Config) -> None:
    if not _is_worker(config):
        end_cut_runs(_TREE)
        os.environ[TEST_RUN] = run_of(os.getpid(), _TREE)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    session.config.stash[_interrupted] = exitstatus == pytest.ExitCode.INTERRUPTED


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Ctrl-C ends workers before they have tidied up, and jobs outlive the command that launched them."""
    if config.stash.get(_interrupted, False) and not _is_worker(config):
        sweep(f"{TEST_RUN}={os.environ[TEST_RUN]}")


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def _running(request: pytest.FixtureRequest, specs: Sequence[LabClusterSpec]) -> Iterator[Lab]:
    factory: pytest.TempPathFactory = request.getfixturevalue("tmp_path_factory")
    with running_lab(factory.mktemp("lab", numbered=True), *specs) as made:
        request.session.stash[_running_labs][str(request.fixturename)] = made
        yield made


@pytest.fixture(autouse=True)
def forgotten_secrets() -> Iterator[None]:
    """Forgets the secrets that a test resolved: `redacted` would hide them in all tests of the process."""
    remembered = secrets._REMEMBERED
    before = remembered._values, remembered._pattern, remembered._tokens
    yield
    remembered._values, remembered._pattern, remembered._tokens = before


@pytest.fixture(scope="session")
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Two single-node clusters, dc1 and dc2: `.clusters["dc1"].bootstrap`, `.cluster_id`, `.client`."""
    yield from _running(request, [spec("dc1"), spec("dc2")])


@pytest.fixture(scope="session")
def lab_three(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """One cluster, dc1, of three brokers."""
    yield from _running(request, [spec("dc1", brokers=3)])


@pytest.fixture(scope="session")
def lab_sasl(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """dc1 and dc2 with SCRAM users admin, repl, app and stranger (without any right), and ACLs."""
    yield from _running(request, [spec(name, security=Security.SASL) for name in ("dc1", "dc2")])


@pytest.fixture(scope="session")
def lab_tls(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """dc1 and dc2 with mutual TLS."""
    yield from _running(request, [spec(name, security=Security.TLS) for name in ("dc1", "dc2")])


@pytest.fixture
def own_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeLab]:
    """own_lab(spec("dc1"), …) → a lab that only this test has, and may break."""
    made: list[Lab] = []

    def make(*specs: LabClusterSpec) -> Lab:
        new = Lab(tmp_path_factory.mktemp("own-lab", numbered=True))
        made.append(new)
        new.up(specs)
        return new

    yield make
    for each in made:
        each.down(purge=True)


_numbers = itertools.count(1)


@pytest.fixture
def broken_pipe() -> Iterator[int]:
    """The end of a pipe that nobody reads any more."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


@pytest.fixture
def fresh() -> Callable[[str], str]:
    """fresh("orders") → a name that no other test of this session or worker has: orders-a1b2c3-7."""
    base = uuid.uuid5(uuid.NAMESPACE_OID, f"{os.getpid()}").hex[:4] + uuid.uuid4().hex[:4]

    def name(word: str = "t") -> str:
        return f"{word}-{base}-{next(_numbers)}"

    return name

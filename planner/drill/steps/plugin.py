"""The pytest plugin: with `--repl-topology PATH`, pytest runs `.feature` files on a copy of the topology.

Every scenario has clusters of its own on this machine, on which the topology was applied. Without the option
the plugin does nothing, so that it disturbs no other tests.
"""

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_bdd.parser import Feature, Scenario
    from pytest_bdd.parser import Step as GherkinStep

    from planner.drill.rehearsal import DrillLimits
    from planner.drill.replica import ReplicaNeeds
    from planner.drill.scenario_run import ScenarioRun
    from planner.model.drill import Scenario as ScenarioResult
    from planner.model.topology import Topology


@dataclass
class FeatureDrill:
    """What a run of features shares: the topology, the results, and where progress goes."""

    path: Path
    topology: "Topology"
    progress: Callable[[str], None]
    results: "list[ScenarioResult]" = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: tuple[str, ...] = ()
    limits: "DrillLimits | None" = None
    run: "ScenarioRun | None" = None
    sentence: str = ""


DRILL = pytest.StashKey[FeatureDrill]()
_SCENARIO = re.compile(
    r"^\s*(?:Scenario|Example|Scenario Outline|Scenario Template):\s*(.*?)\s*$", re.MULTILINE
)
_NEEDS = pytest.StashKey["Scenario"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("repl", "drills of repl")
    group.addoption(
        "--repl-topology",
        type=Path,
        metavar="PATH",
        help="Run .feature files against a copy of this topology on clusters of this machine.",
    )
    group.addoption("--repl-var-file", type=Path, action="append", default=[], metavar="FILE")


def pytest_configure(config: pytest.Config) -> None:
    path: Path | None = config.getoption("repl_topology")
    if path is None or DRILL in config.stash:
        return
    from planner.config import load
    from planner.model.diagnostic import Failure
    from runtime.contract.extras import Extra, is_missing, missing_extra

    if is_missing(Extra.DRILL):
        raise pytest.UsageError("; ".join(missing_extra(Extra.DRILL, "--repl-topology")))
    from planner.drill.steps import sentences

    try:
        topology = load(path, tuple(config.getoption("repl_var_file")))
    except Failure as failure:
        raise pytest.UsageError("\n".join(map(str, failure.diagnostics))) from None
    config.stash[DRILL] = FeatureDrill(path, topology, _progress(config))
    config.pluginmanager.register(sentences, "repl-drill-sentences")
    config.pluginmanager.register(_Hooks(config.stash[DRILL]), "repl-drill-hooks")


def _progress(config: pytest.Config) -> Callable[[str], None]:
    """Returns what writes a line of progress to pytest's own terminal, which captures nothing of it."""

    def write(text: str) -> None:
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            from planner.render.readable import one_line

            reporter.ensure_newline()
            reporter.write_line(f"{time.strftime('%H:%M:%S')} {one_line(text)}")

    return write


class FeatureFile(pytest.Module):
    """A feature file as a module of tests, one for each scenario."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        self.obj = _module_of(self.path)
        return super().collect()


def _module_of(path: Path) -> ModuleType:
    from pytest_bdd import scenario
    from pytest_bdd.exceptions import FeatureError
    from pytest_bdd.feature import get_feature

    module, folder = ModuleType(path.stem), str(path.parent)
    try:
        feature = get_feature(folder, path.name)
    except FeatureError as wrong:
        raise pytest.Collector.CollectError(str(wrong)) from None
    except KeyError:
        raise pytest.Collector.CollectError(f"{path}: there is no scenario") from None
    names = _SCENARIO.findall(path.read_text(encoding="utf-8"))
    if twice := sorted({name for name in names if names.count(name) > 1}):
        # pytest-bdd would run the last one alone.
        raise pytest.Collector.CollectError(f"{path}: two scenarios have one name: {', '.join(twice)}")
    for number, name in enumerate(feature.scenarios, 1):

        @scenario(path.name, name, features_base_dir=folder)
        def test() -> None:
            """The scenario is all."""

        setattr(module, f"test_{number}", test)
    return module


class _Hooks:
    """What pytest and pytest-bdd call while features run."""

    def __init__(self, drill: FeatureDrill) -> None:
        self._drill = drill

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        if file_path.suffix != ".feature":
            return None
        module: pytest.Collector = FeatureFile.from_parent(parent, path=file_path)
        return module

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Refuses sentences that are no steps or name what is not there, before anything is started."""
        problems = self._drill.problems
        for item in session.items:
            if isinstance(item.parent, FeatureFile) and isinstance(item, pytest.Function):
                problems += [problem for problem in self._problems(item) if problem not in problems]
        if problems:
            pytest.exit("\n".join(problems), returncode=pytest.ExitCode.USAGE_ERROR)

    def _problems(self, item: pytest.Function) -> Iterator[str]:
        from pytest_bdd.scenario import find_fixturedefs_for_step

        from planner.drill.steps.check import SentenceCheck
        from planner.drill.steps.language import matching, nearest

        for scenario in _scenarios(item):
            for line in (scenario.description or "").splitlines():
                word, _, sentence = line.strip().partition(" ")
                if any(True for _ in matching(sentence)):  # Gherkin would take it for a comment
                    where = f"{item.path}: in {scenario.name}: "
                    yield f"{where}begin a step with Given, When, Then, And or But: {word} {sentence}"
            if not scenario.steps:
                yield f"{item.path}:{scenario.line_number}: the scenario {scenario.name} has no steps"
            wrong: dict[int, list[str]] = {}
            for index, problem in SentenceCheck(self._drill.topology).problems(
                [step.name for step in scenario.steps]
            ):
                wrong.setdefault(index, []).append(problem)
            for index, step in enumerate(scenario.steps):
                if not any(find_fixturedefs_for_step(step, item.session._fixturemanager, item)):
                    near = "; ".join(nearest(step.name))
                    wrong[index] = [f'there is no step "{step.name}"; the nearest are: {near}']
                for problem in wrong.get(index, ()):
                    yield f"{item.path}:{step.line_number}: {problem}"

    def pytest_bdd_before_scenario(self, request: pytest.FixtureRequest, scenario: "Scenario") -> None:
        request.node.stash[_NEEDS] = scenario
        self._drill.run, self._drill.sentence = None, "the clusters are started"
        self._drill.progress(f"Scenario: {scenario.name}")

    def pytest_bdd_before_step(self, request: pytest.FixtureRequest, step: "GherkinStep") -> None:
        request.getfixturevalue("drill")  # here, so that no step's time has the start of the clusters
        if self._drill.run is not None:
            before_sentence(self._drill.run, step.name)
        self._drill.sentence = step.name
        self._drill.progress(f"{step.keyword} {step.name}")

    def pytest_bdd_after_step(self, step: "GherkinStep") -> None:
        self._end_step(step, failed=False)

    def pytest_bdd_step_error(self, step: "GherkinStep") -> None:
        self._end_step(step, failed=True)

    def _end_step(self, step: "GherkinStep", *, failed: bool) -> None:
        if self._drill.run is not None:
            self._drill.run.end_step(f"{step.keyword} {step.name}", failed=failed)

    def pytest_bdd_after_scenario(self, feature: "Feature", scenario: "Scenario") -> None:
        from planner.drill.scenario_record import DrillAborted

        raised = sys.exc_info()[1]  # this hook runs while the exception of a step is under way
        name = f"{feature.name}: {scenario.name}" if feature.name else scenario.name
        try:
            if raised is None and self._drill.run is not None:
                before_sentence(self._drill.run, "")
        except DrillAborted as wrong:
            raised = wrong
            raise
        finally:
            if not isinstance(raised, KeyboardInterrupt):
                self._keep(name, raised)

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        if excinfo.type is KeyboardInterrupt:  # pytest's own ends are no interruption
            self._drill.progress("interrupted: the clusters and jobs are removed; once more stops at once")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._drill.problems.append(report.longreprtext)

    def _keep(self, name: str, raised: BaseException | None) -> None:
        """Adds the result of a scenario. An assertion of a step that is not ours is a promise, too."""
        from planner.drill import promises
        from planner.drill.scenario_record import DrillAborted, PromiseBroken, problem_of
        from planner.model.diagnostic import Failure
        from planner.model.drill import Scenario as Result

        run, problem = self._drill.run, ""
        match raised:
            case None | PromiseBroken():
                pass
            case AssertionError() if run is not None:
                why = str(raised).partition("\nassert ")[0]
                run.promise(self._drill.sentence, "holds", "does not hold", kept=False, why=why)
            case Failure() | DrillAborted():
                problem = f"{self._drill.sentence}: {problem_of(raised)}"
            case _:
                problem = f"{self._drill.sentence}: {type(raised).__name__}: {raised}"
        if run is not None and self._drill.limits is not None:
            promises.limits(run, self._drill.limits)
        self._drill.results.append(
            Result(name, "", (), (), problem=problem) if run is None else run.result(name, "", problem)
        )


def before_sentence(run: "ScenarioRun", sentence: str) -> None:
    """Counts the loss of a failover, unless a group goes on now, whose time is measured.

    Raises DrillAborted where a command failed and this sentence does not judge how it ended.
    """
    from planner.drill.scenario_record import DrillAborted
    from planner.drill.steps.language import matching

    steps = [step for step, _ in matching(sentence)]
    if any(step.judges for step in steps):
        run.expect_failure()
    if problem := run.failed_command():
        raise DrillAborted(problem)
    if not any(step.resumes for step in steps):
        run.count_loss()


@pytest.fixture(scope="session")
def repl_drill_alone(request: pytest.FixtureRequest) -> Iterator[None]:
    """Refuses a second drill of the same topology."""
    from planner.drill.rehearsal import alone, drill_folder

    with alone(drill_folder(request.config.stash[DRILL].path)):
        yield


@pytest.fixture
def drill(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The scenario under way, on clusters of its own to which the topology was applied."""
    if DRILL not in request.config.stash:
        pytest.fail("name the topology: pytest --repl-topology PATH", pytrace=False)
    from planner.drill import promises
    from planner.drill.rehearsal import drill_folder
    from planner.drill.replica import Replica
    from planner.drill.scenario_run import ScenarioRun

    request.getfixturevalue("repl_drill_alone")
    shared = request.config.stash[DRILL]
    needs = needs_of(step.name for step in request.node.stash[_NEEDS].steps)
    replica = Replica(shared.topology, drill_folder(shared.path), shared.progress, needs)
    shared.notes = replica.notes
    shared.progress("clusters are started on this machine")
    with replica.running():
        shared.run = ScenarioRun(replica, shared.progress)
        try:
            promises.apply(shared.run)
            yield shared.run
        finally:
            shared.run.close()


def _scenarios(item: pytest.Function) -> "Iterator[Scenario]":
    """Yields the scenario of an item, as its examples fill it."""
    from pytest_bdd.scenario import scenario_wrapper_template_registry

    template = scenario_wrapper_template_registry.get(item.function)
    if template is not None:
        parameters = getattr(item, "callspec", None)
        yield template.render(parameters.params["_pytest_bdd_example"] if parameters else {})


def needs_of(sentences: Iterable[str]) -> "ReplicaNeeds":
    """Returns how many brokers clusters need for what is done to them, and which need a link."""
    from planner.drill.replica import ReplicaNeeds
    from planner.drill.scenario_run import ScenarioRun as Run
    from planner.drill.steps.language import matching

    brokers: dict[str, int] = {}
    links: set[str] = set()
    for sentence in sentences:
        for step, texts in matching(sentence):
            if step.function in (Run.lose_half, Run.lose_brokers):
                cluster, needed = texts["cluster"], step.values(texts).get("all", 2)
                brokers[cluster] = max(brokers.get(cluster, 0), needed)
            elif step.function in (Run.cut_off, Run.slow_link, Run.restore_link):
                links.add(texts["cluster"])
    return ReplicaNeeds(brokers, frozenset(links))

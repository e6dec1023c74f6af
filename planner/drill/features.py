"""A drill of feature files: pytest runs them in this process, with our plugin and no other.

Every scenario has clusters of its own on this machine, on which the topology was applied.
"""

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from pytest_bdd import scenario as scenario_test
from pytest_bdd.exceptions import FeatureError
from pytest_bdd.feature import get_feature
from pytest_bdd.parser import Feature, Scenario
from pytest_bdd.parser import Step as GherkinStep
from pytest_bdd.scenario import find_fixturedefs_for_step, scenario_wrapper_template_registry

from planner.drill import promises
from planner.drill.replica import Replica, only_drill
from planner.drill.scenario_record import DrillAborted, Progress, PromiseBroken, ScenarioRecord, problem_of
from planner.drill.scenario_run import ScenarioRun
from planner.drill.steps import sentences
from planner.drill.steps.check import wrong_sentences
from planner.drill.steps.language import matching
from planner.model.diagnostic import Failure, error
from planner.model.drill import Scenario as ScenarioResult
from planner.model.topology import Topology
from planner.workflows.requests import DrillRequest

_OPTIONS = "PYTEST_ADDOPTS"  # which are meant for other tests
_SCENARIO = re.compile(
    r"^\s*(?:Scenario|Example|Scenario Outline|Scenario Template):\s*(.*?)\s*$", re.MULTILINE
)


def rehearse_features(
    request: DrillRequest, topology: Topology, features: Path, progress: Progress
) -> tuple[tuple[str, ...], tuple[ScenarioResult, ...]]:
    """Runs the scenarios of a folder or a file, each on clusters of its own. Returns notes and results.

    Limits of the request hold for each scenario that measures them, limits of the topology do not. A
    `conftest.py` there may define steps of the team's own. Failure: a sentence is no step, a file can't be
    read, or there is no scenario.
    """
    drill = FeatureDrill(request, topology, progress)
    root = features if features.is_dir() else features.parent
    options = ["--config-file", os.devnull, "--rootdir", str(root), "--capture=no", "--import-mode=importlib"]
    options += ["--disable-plugin-autoload", "-p", "pytest_bdd.plugin"]
    options += ["-p", "no:terminal", "-p", "no:cacheprovider", str(features)]
    others = os.environ.pop(_OPTIONS, None)
    try:
        code = pytest.main(options, plugins=[drill])
    finally:
        if others is not None:
            os.environ[_OPTIONS] = others
    if code == pytest.ExitCode.INTERRUPTED and not drill.problems:
        raise KeyboardInterrupt
    if drill.problems:
        hint = "repl drill --steps shows all steps"
        raise Failure([error(problem, hint) for problem in drill.problems])
    if not drill.results:
        raise Failure(error(f"{features}: there is no scenario", "write one into a file NAME.feature"))
    return drill.notes, tuple(drill.results)


class FeatureDrill:
    """A run of feature files: a plugin of pytest with our steps, which keeps the results.

    `problems` are what is wrong with the files themselves. `run` is the scenario under way, None until its
    clusters run.
    """

    def __init__(self, request: DrillRequest, topology: Topology, progress: Progress) -> None:
        self.results: list[ScenarioResult] = []
        self.problems: list[str] = []
        self.notes: tuple[str, ...] = ()
        self.run: ScenarioRun | None = None
        self._request = request
        self._topology = topology
        self._progress = progress
        self._scenario: Scenario | None = None
        self._sentence = ""

    @pytest.fixture(scope="session")
    def repl_drill_folder(self) -> Iterator[Path]:
        """The folder of the copy. A second drill of the same topology is refused."""
        with only_drill(self._request.path) as folder:
            yield folder

    @pytest.fixture
    def drill(self, repl_drill_folder: Path) -> Iterator[ScenarioRun]:
        """The scenario under way, on clusters of its own to which the topology was applied."""
        assert self._scenario is not None
        brokers, linked = needs_of(step.name for step in self._scenario.steps)
        replica = Replica(self._topology, repl_drill_folder, self._progress, brokers, linked)
        self.notes = replica.notes
        self._progress("clusters are started on this machine")
        with replica.running():
            self.run = ScenarioRun(replica, self._progress)
            try:
                promises.apply(self.run)
                yield self.run
            finally:
                self.run.close()

    def pytest_configure(self, config: pytest.Config) -> None:
        config.pluginmanager.register(sentences, "repl-drill-sentences")

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        if file_path.suffix != ".feature":
            return None
        module: pytest.Collector = FeatureFile.from_parent(parent, path=file_path)
        return module

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.problems.append(report.longreprtext)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Refuses sentences that are no steps or name what is not there, before anything is started."""
        for item in session.items:
            if isinstance(item.parent, FeatureFile) and isinstance(item, pytest.Function):
                self.problems += [problem for problem in self._problems(item) if problem not in self.problems]
        if self.problems:
            pytest.exit("\n".join(self.problems), returncode=pytest.ExitCode.USAGE_ERROR)

    def _problems(self, item: pytest.Function) -> Iterator[str]:
        template = scenario_wrapper_template_registry.get(item.function)
        if template is None:
            return
        parameters = getattr(item, "callspec", None)
        scenario = template.render(parameters.params["_pytest_bdd_example"] if parameters else {})
        for line in (scenario.description or "").splitlines():
            word, _, sentence = line.strip().partition(" ")
            if any(True for _ in matching(sentence)):  # Gherkin would take it for a comment
                where = f"{item.path}: in {scenario.name}: "
                yield f"{where}begin a step with Given, When, Then, And or But: {word} {sentence}"
        if not scenario.steps:
            yield f"{item.path}:{scenario.line_number}: the scenario {scenario.name} has no steps"

        def of_team(index: int) -> bool:
            return any(find_fixturedefs_for_step(scenario.steps[index], item.session._fixturemanager, item))

        texts = [step.name for step in scenario.steps]
        for index, problem in wrong_sentences(self._topology, texts, of_team):
            yield f"{item.path}:{scenario.steps[index].line_number}: {problem}"

    def pytest_bdd_before_scenario(self, scenario: Scenario) -> None:
        self.run, self._scenario, self._sentence = None, scenario, "the clusters are started"
        self._progress(f"Scenario: {scenario.name}")

    def pytest_bdd_before_step(self, request: pytest.FixtureRequest, step: GherkinStep) -> None:
        request.getfixturevalue("drill")  # here, so that no step's time has the start of the clusters
        if self.run is not None:
            self.run.before_sentence(step.name)
        self._sentence = step.name
        self._progress(f"{step.keyword} {step.name}")

    def pytest_bdd_after_step(self, step: GherkinStep) -> None:
        if self.run is not None:
            self.run.end_step(f"{step.keyword} {step.name}", failed=False)

    def pytest_bdd_step_error(self, step: GherkinStep) -> None:
        if self.run is not None:
            self.run.end_step(f"{step.keyword} {step.name}", failed=True)

    def pytest_bdd_after_scenario(self, feature: Feature, scenario: Scenario) -> None:
        raised = sys.exc_info()[1]  # this hook runs while the exception of a step is under way
        name = f"{feature.name}: {scenario.name}" if feature.name else scenario.name
        try:
            if raised is None and self.run is not None:
                self.run.before_sentence("")
        except DrillAborted as wrong:
            raised = wrong
            raise
        finally:
            if not isinstance(raised, KeyboardInterrupt):
                self._keep(name, raised)

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        if excinfo.type is KeyboardInterrupt:  # pytest's own ends are no interruption
            self._progress("interrupted: the clusters and jobs are removed; once more stops at once")

    def _keep(self, name: str, raised: BaseException | None) -> None:
        """Adds the result of a scenario. An assertion of a step that is not ours is a promise, too."""
        run = self.run or ScenarioRecord(self._progress)
        run.scenario.name = name
        match raised:
            case None | PromiseBroken():
                pass
            case AssertionError() if run is self.run:
                why = str(raised).partition("\nassert ")[0]
                run.promise(self._sentence, "holds", "does not hold", kept=False, why=why)
            case Failure() | DrillAborted():
                run.scenario.problem = f"{self._sentence}: {problem_of(raised)}"
            case _:
                run.scenario.problem = f"{self._sentence}: {type(raised).__name__}: {raised}"
        promises.limits(run, self._request)
        self.results.append(run.scenario)


class FeatureFile(pytest.Module):
    """A feature file as a module of tests, one for each scenario."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        self.obj = ModuleType(self.path.stem)
        folder = str(self.path.parent)
        try:
            feature = get_feature(folder, self.path.name)
        except FeatureError as wrong:
            raise self.CollectError(str(wrong)) from None
        except KeyError:
            raise self.CollectError(f"{self.path}: there is no scenario") from None
        names = _SCENARIO.findall(self.path.read_text(encoding="utf-8"))
        if twice := sorted({name for name in names if names.count(name) > 1}):
            # pytest-bdd would run the last one alone.
            raise self.CollectError(f"{self.path}: two scenarios have one name: {', '.join(twice)}")
        for number, name in enumerate(feature.scenarios, 1):
            setattr(self.obj, f"test_{number}", _test_of(self.path.name, name, folder))
        return super().collect()


def _test_of(file: str, name: str, folder: str) -> Callable[..., None]:
    @scenario_test(file, name, features_base_dir=folder)
    def test() -> None:
        """The scenario is all."""

    return test


def needs_of(texts: Iterable[str]) -> tuple[dict[str, int], set[str]]:
    """Returns how many brokers clusters need for what sentences do to them, and which need a link."""
    brokers: dict[str, int] = {}
    linked: set[str] = set()
    for sentence in texts:
        for step, values in matching(sentence):
            if step.function in (ScenarioRun.lose_half, ScenarioRun.lose_brokers):
                cluster, needed = values["cluster"], step.values(values).get("all", 2)
                brokers[cluster] = max(brokers.get(cluster, 0), needed)
            elif step.function in (ScenarioRun.cut_off, ScenarioRun.slow_link, ScenarioRun.restore_link):
                linked.add(values["cluster"])
    return brokers, linked

"""What the pages show of a reading, asked from a real server."""

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from msgspec.structs import replace

from planner.model.diagnostic import Failure, error
from planner.ui.pages import MOST_ARROWS_DOWN
from runtime.contract.results.status import ClusterTraffic, ReplicationStatus
from runtime.contract.results.waves import Straggler, WaveProgress, WaveState
from tests.fakes.blank import blank
from tests.fakes.tables import cases
from tests.planner.render import test_status as scenes
from tests.planner.ui.serving import Parsed, Visited, fresh, serving
from tests.runtime.audit.given import FLOW, JOB, TOPIC
from tests.topologies import without_answer

pytestmark = pytest.mark.slow

HOSTILE = "<script>alert(1)</script>\"'&\u202ex\nnext"


def hostile() -> ReplicationStatus:
    """Every text that comes from a cluster or a file is hostile."""
    seen = scenes.needs_someone()
    flow = seen.flows[0]
    topics = [
        replace(
            one,
            topic=HOSTILE,
            destination_topic=HOSTILE,
            partitions=[replace(each, topic=HOSTILE, why=HOSTILE, next=HOSTILE) for each in one.partitions],
        )
        for one in flow.topics
    ]
    jobs = [replace(one, why=HOSTILE, host=HOSTILE, application=HOSTILE, master=HOSTILE) for one in seen.jobs]
    clusters = [replace(one, answers=False, why=HOSTILE) for one in seen.clusters]
    changed = replace(flow, name=HOSTILE, why=HOSTILE, notes=[HOSTILE], next=[HOSTILE], topics=topics)
    return replace(seen, topology=HOSTILE, flows=[changed], jobs=jobs, clusters=clusters)


WRITES = Straggler(topic="orders", records=3, producers=(HOSTILE,), groups=("old",))
FENCE = {"cutover": "to-cloud", "wave": "billing", "fence": "1 of 1 rules at dc1"}
WAVE = blank(WaveProgress, **FENCE, state=WaveState.FENCED, topics=("orders",), left=7, pause_ms=2_600)
MOVED = replace(WAVE, wave="audit", state=WaveState.MOVED, left=0, stragglers=(WRITES,))
OTHERS = (WaveState.WAITING, WaveState.RETURNING, WaveState.UNKNOWN)
WAVES = replace(
    scenes.caught_up(),
    waves=[WAVE, MOVED, *(replace(WAVE, wave=f"is {state}", state=state) for state in OTHERS)],
)
EMPTY = replace(scenes.caught_up(), flows=[], jobs=[], clusters=[])
ONE = scenes.caught_up().flows[0]
INTO_FILES = replace(scenes.caught_up(), flows=[ONE, replace(ONE, name="to-lake", destination="lake")])
TRAFFIC = replace(
    scenes.copying(),
    clusters=[
        replace(one, traffic=ClusterTraffic(over_ms=10_000, records_per_s=123_456, bytes_per_s=None))
        for one in scenes.copying().clusters
    ],
)
FAILED_OVER = replace(scenes.caught_up(), flows=[replace(ONE, declared="failed_over")])
OF_FLOW, OF_TOPIC, OF_JOB = f"/flow?name={FLOW}", f"/topic?flow={FLOW}&topic={TOPIC}", f"/job?name={JOB}"
TOO_LARGE = "orders-0: the record at offset 90 has 2,000,000 bytes, dc2 takes 1,048,588"


PATHS = ("/", OF_FLOW, OF_TOPIC, OF_JOB, "/search?q=o")


@pytest.fixture(scope="module")
def visited() -> Iterator[Visited]:
    """A server of a flow that copies. Its reading grows old while the tests run."""
    with serving(fresh(scenes.copying())) as made:
        yield made


@cases(
    "status path words",
    {
        "caught up": (scenes.caught_up(), "/", "Fail over dc1: safe, nothing would be lost|caught up"),
        "copying": (scenes.copying(), "/", "would lose 400 records, 0.3 s: within the RPO|2,000/s|5.0 s met"),
        "waves": (
            WAVES,
            "/",
            "Cutovers|fenced|1 of 1 rules at dc1|2.6 s|3 records written since|read by old|returning|unknown",
        ),
        "waits": (scenes.needs_someone(), "/", "beyond the RPO|record too large|20 min|5.0 s exceeded"),
        "job down": (scenes.job_down(), "/", "job dc2 is down: its heartbeat stopped 60 s ago|down"),
        "no source": (
            scenes.source_down(),
            "/",
            "Cluster dc1 does not answer|would lose at least 5 records|≥ 5",
        ),
        "destination down": (
            scenes.destination_down(),
            "/",
            "Cluster dc2 does not answer|not known what would be lost|unknown",
        ),
        "never ran": (scenes.never_ran(), "/", "it has never run at dc2"),
        "no flows": (EMPTY, "/", "shop declares no flow: there is nothing to replicate."),
        "a flow into files": (INTO_FILES, "/", "lake files"),
        "what is written to a cluster": (TRAFFIC, "/", "Copied in by flows|123,456/s"),
        "failed over": (
            FAILED_OVER,
            "/",
            "Fail over dc1: nothing is left to fail over (1 failed over)",
        ),
        "a flow": (scenes.needs_someone(), OF_FLOW, f"{TOO_LARGE}|raise max.message.bytes of the mirror"),
        "no such topics": (scenes.needs_someone(), f"{OF_FLOW}&words=nothing-like-it", "No topic fits"),
        "a topic": (scenes.needs_someone(), OF_TOPIC, "record too large|Next: raise max.message.bytes"),
        # The log needs the topology, without which no launcher is known.
        "a job": (
            scenes.waits_for_a_core(),
            OF_JOB,
            "unscheduled|no free core|nowhere.yaml: no such file or folder",
        ),
        "a search that finds nothing": (scenes.caught_up(), "/search?q=zebra", "Topics 0 None"),
    },
)
def test_what_a_page_says(status, path, words) -> None:
    """The overview leads with the verdict and its reasons."""
    with serving(fresh(status)) as visited:
        text = visited.page(path).text
    assert [one for one in words.split("|") if one not in text] == []


@pytest.mark.parametrize(
    "status", [scenes.source_down(), scenes.destination_down(), scenes.job_down(), scenes.never_ran()]
)
def test_nothing_is_green_that_is_not_known(status) -> None:
    with serving(fresh(status)) as visited:
        page = visited.page("/")

    classes = [attributes.get("class") or "" for _, attributes in page.elements]
    verdicts = [one for one in classes if one.startswith("verdict")]
    assert verdicts
    assert not any("good" in one for one in [*verdicts, *(one for one in classes if "safety" in one)])


def test_before_the_first_reading_nothing_is_claimed() -> None:
    with serving() as visited:
        assert "Nothing is known yet" in visited.page("/").text
        assert "Nothing is known yet" in visited.page(f"/flow?name={FLOW}").text
        assert visited.ask("/status.json").status == 503
        assert visited.ask("/healthz").status == 503


def test_an_old_reading_is_shown_with_its_age_and_without_green() -> None:
    with serving(scenes.caught_up()) as visited:  # its time is another than now
        page = visited.page("/")
        assert visited.ask("/healthz").status == 503

    assert "The last reading is from" in page.text
    assert "Fail over dc1: not known now; when last read: safe" in page.text
    assert page.named("main")[0]["class"] == "old"


def test_a_failed_reading_is_said_and_the_last_one_stays() -> None:
    with serving(fresh(scenes.caught_up())) as visited:
        visited.give(Failure(error("demo.yaml:3:1: unknown key flow", "did you mean flows?")))
        page = visited.page("/")

    assert "The status cannot be read: everything below is from" in page.text
    assert "unknown key flow did you mean flows?" in page.text
    assert "not known now; when last read: safe" in page.text


def test_what_was_last_known_stays_while_a_cluster_is_away() -> None:
    with serving(fresh(scenes.copying()), fresh(scenes.destination_down())) as visited:
        overview = visited.page("/").text
        flow = visited.page(f"/flow?name={FLOW}").text
        job = visited.page(f"/job?name={JOB}").text

    assert re.search(r"Last known, .* ago: copying, lag 400 records, 0\.3 s behind, 2,000/s", overview)
    assert re.search(r"Last known, .* ago: copying, lag 400 records", flow)
    assert re.search(r"Last known, .* ago: running, 1 of 1 slot running, generation 3", job)
    assert re.search(r"Cluster dc2 does not answer: no broker answers\. It answered last .* ago", overview)


def test_a_flow_draws_its_hour() -> None:
    with serving(fresh(scenes.needs_someone())) as visited:
        labels = [one.get("aria-label") or "" for one in visited.page(OF_FLOW).named("svg")]
    behind = [one for one in labels if one.startswith("Behind over the last hour")]
    assert behind == ["Behind over the last hour: now 20 min, highest 20 min"]


@pytest.mark.parametrize("flow", [FLOW, "to-lake"])
def test_a_flow_leads_to_its_job_also_where_it_goes_into_files(flow: str) -> None:
    """The job of a flow into files is beside the source, not beside the endpoint."""
    jobs = [replace(one, flows=[FLOW, "to-lake"]) for one in INTO_FILES.jobs]
    with serving(fresh(replace(INTO_FILES, jobs=jobs))) as visited:
        (job,) = [
            str(one["href"])
            for one in visited.page(f"/flow?name={flow}").named("a")
            if str(one["href"]).startswith("/job?")
        ]
        assert "Heartbeat" in visited.page(job).text


def test_search_finds_topics_at_both_sides(visited) -> None:
    page = visited.page("/search?q=ORD")

    assert f"/topic?flow={FLOW}&topic={TOPIC}" in [one["href"] for one in page.named("a")]


@pytest.mark.parametrize(
    "path",
    [
        "/nowhere",
        "/flow?name=none",
        f"/topic?flow={FLOW}&topic=none",
        "/job?name=none",
        "/group",
        "/plan/document?kind=x",
    ],
)
def test_what_does_not_exist_is_404_with_a_way_on(path, visited) -> None:
    assert "To the overview" in visited.page(path, 404).text


@pytest.mark.parametrize("path", ["/", "/flow", "/topic", "/job", "/search?q=script", "/groups"])
def test_hostile_names_stay_text(path) -> None:
    query = (
        urlencode({"name": HOSTILE, "flow": HOSTILE, "topic": HOSTILE}) if path != "/job" else f"name={JOB}"
    )
    with serving(fresh(hostile())) as visited:
        answer = visited.ask(path if "?" in path else f"{path}?{query}")

    assert answer.status == 200, answer.text
    assert "<script>alert" not in answer.text
    assert "\u202e" not in answer.text
    assert "alert(1)" in answer.text


@pytest.mark.parametrize("path", PATHS)
def test_pages_need_no_other_site_and_no_inline_code(path, visited) -> None:
    page = visited.page(path)
    attributes = [pair for _, one in page.elements for pair in one.items()]
    links = [value for name, value in attributes if name in ("src", "href", "action")]
    assert all((link or "").startswith(("/", "#")) for link in links), links
    assert not [name for name, _ in attributes if name == "style" or name.startswith("on")]
    assert all(one.get("src") for one in page.named("script"))


@pytest.mark.parametrize("path", PATHS)
def test_elements_have_names_for_screen_readers(path, visited) -> None:
    page = visited.page(path)
    assert page.named("html")[0]["lang"] == "en"
    assert len(page.named("h1")) == 1
    assert all(one.get("aria-label") for one in page.named("svg"))
    assert all(one.get("aria-label") or one.get("type") == "hidden" for one in page.named("input"))
    assert all(one.get("scope") in ("col", "row") for one in page.named("th"))
    ids = [one["id"] for _, one in page.elements if "id" in one]
    assert len(ids) == len(set(ids))


def test_the_document_for_programs() -> None:
    with serving(fresh(scenes.copying())) as visited:
        answer = visited.ask("/status.json")

    document = json.loads(answer.text)
    assert answer.headers["content-type"] == "application/json"
    assert (document["format_version"], document["topology"], document["old"]) == (1, "shop", False)
    assert document["failovers"][0]["verdict"] == "within_rpo"


@pytest.fixture
def lonely(tmp_path: Path) -> Path:
    """A topology of which no cluster answers."""
    return without_answer(tmp_path)


def answered(visited: Visited, path: str, questions: int = 1) -> Parsed:
    """The page, when its questions are answered."""
    while True:
        before = visited.site.feed.changes
        page = visited.page(path)
        if page.text.count("ago, in") >= questions:
            return page
        visited.until(before + 1)


def test_a_plan_is_computed_on_demand_and_shown_whole_in_a_sandbox(lonely: Path) -> None:
    with serving(fresh(scenes.caught_up()), path=lonely) as visited:
        page = answered(visited, "/plan", questions=2)
        whole = visited.ask("/plan/document")
        again = visited.ask("/plan/again", "POST", "")
        later = answered(visited, "/plan", questions=2)

    assert "dc1 could not be read" in page.text
    assert "No changes in what could be read." in page.text
    assert "No drift in what could be read." in page.text
    script = re.search("<script>(.*?)</script>", whole.text, re.DOTALL)
    assert script is not None
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    policy = whole.headers["content-security-policy"]
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.endswith("sandbox allow-scripts")
    assert (again.status, again.headers["location"]) == (303, "/plan")
    assert "dc1 could not be read" in later.text


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/history", "dc1 can't be read"),
        (f"/groups?flow={FLOW}", "dc2: "),
        (f"/group?name=billing&flow={FLOW}", "dc2: "),
        ("/search?q=billing", "dc1: "),
        (f"/job?name={JOB}", "This machine has no log of it"),
    ],
)
def test_a_question_that_fails_says_why(path: str, said: str, lonely: Path) -> None:
    with serving(fresh(scenes.caught_up()), path=lonely) as visited:
        page = answered(visited, path)

    assert said in page.text


def test_many_flows_are_drawn_as_one_arrow_for_each_pair_of_clusters() -> None:
    seen = scenes.copying()
    flows = [replace(seen.flows[0], name=f"flow-{number}") for number in range(MOST_ARROWS_DOWN + 1)]
    with serving(fresh(replace(seen, flows=flows))) as visited:
        page = visited.page("/")

    arrows = [one for one in page.named("a") if (one.get("class") or "").startswith("pill")]
    assert len(arrows) == len(flows) + 1  # each of its own on a wide screen, one together on a phone
    assert arrows[-1]["href"] == "/?from=dc1&to=dc2"
    assert (arrows[-1]["aria-label"] or "").startswith(
        "4 flows from dc1 to dc2: copying, 8,000/s, lag 1,600 records"
    )


def test_each_reading_is_an_event_for_every_viewer() -> None:
    with serving(fresh(scenes.copying())) as visited, visited.events() as one, visited.events() as other:
        assert (next(one), next(other)) == ("hello", "hello")
        visited.readings.give(fresh(scenes.caught_up()))
        assert (next(one), next(other)) == ("change", "change")
        assert "safe, nothing would be lost" in visited.page("/").text


def test_the_server_ends_at_once_while_viewers_are_connected() -> None:
    with serving(fresh(scenes.copying())) as visited, visited.events() as events:
        assert next(events) == "hello"
        visited.server.should_exit = True
        assert list(events) in ([], ["change"])

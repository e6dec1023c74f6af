"""The routes: each takes the last reading, asks what is asked on demand, and renders one page."""

import asyncio
import base64
import hashlib
import re
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from planner.model.plan import Plan
from planner.render.plan.documents import html
from planner.render.plan.words import WORDS, shown_changes, summary_line
from planner.render.reports import history as history_words
from planner.render.status import document
from planner.ui import pages
from planner.ui.access import AccessPolicy, Gate, log_in, log_out
from planner.ui.feed import Reading, StatusFeed, now_ms
from planner.ui.inquiries import Inquiries, Inquiry
from planner.ui.pages import FOLDER, Query, compile_templates, rendered
from planner.workflows.audit.drills import DrillHistory, drill_history
from planner.workflows.audit.history import history
from planner.workflows.audit.reading import flow_groups, group_names, job_log, offsets
from planner.workflows.plans import drift, plan
from planner.workflows.requests import (
    HistoryRequest,
    OffsetsRequest,
    PlanRequest,
    TopologyRequest,
)

MOST_STREAMS = 500
_STILL_THERE_S = 15.0
_MOST_PAGES = 64
_PAGE_AGE_MS = 1_000
_LOG_S, _GROUP_S, _GROUPS_S, _HISTORY_S, _DRILLS_S = 5.0, 10.0, 30.0, 30.0, 60.0
_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)


class Site:
    """Everything the pages need: the topology's request, the feed, and what was asked on demand.

    `reports` is the folder of the reports of drills; None is the default one.
    """

    def __init__(
        self,
        request: TopologyRequest,
        feed: StatusFeed,
        policy: AccessPolicy,
        unexpected: Callable[[Exception], str] = repr,
        reports: Path | None = None,
    ) -> None:
        self.request = request
        self.reports = reports
        self.feed = feed
        self.policy = policy
        self.inquiries = Inquiries(feed.ring, unexpected)
        self.ending = False
        self.streams = 0
        self._pages: OrderedDict[tuple[object, ...], bytes] = OrderedDict()
        compile_templates()

    def end(self) -> None:
        """Ends the event streams."""
        self.ending = True
        self.feed.ring()

    def page(
        self, name: str, request: Request, values: Callable[[], dict[str, Any]], status: int = 200
    ) -> Response:
        """Renders a page once for all requests of about the same time."""
        key = (str(request.url), status, self.feed.changes, now_ms() // _PAGE_AGE_MS)
        body = self._pages.get(key)
        if body is None:
            body = rendered(name, {**self._common(request), **values()}).encode()
            self._pages[key] = body
            while len(self._pages) > _MOST_PAGES:
                self._pages.popitem(last=False)
        return HTMLResponse(body, status)

    def _common(self, request: Request) -> dict[str, Any]:
        reading, now = self.feed.reading, now_ms()
        return {
            "now": now,
            "reading": reading,
            "status": reading.status if reading is not None else None,
            "trouble": self.feed.trouble,
            "old": self.feed.old(now),
            "path": request.url.path,
            "q": "",
            "token": self.policy.token is not None,
        }


def _site(request: Request) -> Site:
    site = request.app.state.site
    assert isinstance(site, Site)
    return site


Values = dict[str, Any]
Page = Callable[[Site, Reading, Query], Awaitable[Callable[[], Values]]]


def _page(name: str, page: Page) -> Callable[[Request], Any]:
    """Returns the route of a page. It shows a reading: before the first one there is none to show.

    What a page asks is asked for each request; the values that it returns are computed once for all requests
    of about the same time.
    """

    async def route(request: Request) -> Response:
        site = _site(request)
        reading = site.feed.reading
        if reading is None:
            return site.page("waiting", request, dict)
        return site.page(name, request, await page(site, reading, request.query_params))

    return route


async def _overview(site: Site, reading: Reading, query: Query) -> Callable[[], Values]:
    drills = await _drills(site)
    return lambda: {**pages.overview(reading, query), "drills": drills.value}


async def _flow(site: Site, reading: Reading, query: Query) -> Callable[[], Values]:
    return lambda: pages.flow_page(reading, site.feed.hour, query)


async def _topic(site: Site, reading: Reading, query: Query) -> Callable[[], Values]:
    return lambda: pages.topic_page(reading, site.feed.hour, query)


async def _job(site: Site, reading: Reading, query: Query) -> Callable[[], Values]:
    values = pages.job_page(reading, query.get("name", ""), query.get("at", ""))
    name = values["job"].name
    log = await site.inquiries.asked(("log", name), partial(job_log, site.request, name), _LOG_S)
    return lambda: {**values, "log": log}


async def _groups(site: Site, reading: Reading, query: Query) -> Callable[[], Values]:
    flow = pages.flow_named(reading.status, query.get("flow", ""))
    inquiry = await site.inquiries.asked(
        ("groups", flow.name), partial(flow_groups, site.request, flow.name), _GROUPS_S
    )
    words = query.get("words", "")

    def values() -> Values:
        groups = [group for group in inquiry.value or () if pages.has_words(group.group, words)]
        groups.sort(key=lambda group: (group.kept == 0, group.lost == 0, group.group))
        return {"flow": flow, "inquiry": inquiry, "groups": pages.rows(groups, query), "words": words}

    return values


async def _group(site: Site, reading: Reading, query: Query) -> Callable[[], Values]:
    name = query.get("name", "")
    if not name:
        raise pages.NotFound("Name a group: /group?name=…")
    flows = [flow for flow in reading.status.flows if query.get("flow", flow.name) == flow.name]
    chosen = pages.rows(flows, query, 8)
    answers = (
        site.inquiries.asked(
            ("offsets", flow.name, name),
            partial(offsets, site.request.derive(OffsetsRequest, flow=flow.name, group=name)),
            _GROUP_S,
        )
        for flow in chosen.items
    )
    inquiries = list(zip(chosen.items, await asyncio.gather(*answers), strict=True))
    return lambda: {"name": name, "flows": chosen, "inquiries": inquiries}


async def _search(site: Site, reading: Reading, query: Query) -> Callable[[], Values]:
    words = query.get("q", "")[:200]
    inquiry = await site.inquiries.asked("group names", partial(group_names, site.request), 60.0)

    def values() -> Values:
        status = reading.status
        states = inquiry.value.states if inquiry.value is not None else {}
        groups = pages.matches({name for names in states.values() for name in names}, words)
        matches = {
            "flows": pages.matches({flow.name for flow in status.flows}, words),
            "jobs": pages.matches({job.name for job in status.jobs}, words),
            "topics": pages.matches(
                [(flow, topic) for flow in status.flows for topic in flow.topics],
                words,
                lambda place: [place[1].topic, place[1].destination_topic or ""],
            ),
            "groups": groups,
        }
        at = {name: [cluster for cluster in states if name in states[cluster]] for name in groups.items}
        return {"q": words, "found": matches, "inquiry": inquiry, "clusters_of": at}

    return values


async def _drills(site: Site) -> Inquiry[DrillHistory]:
    return await site.inquiries.asked("drills", partial(drill_history, site.request, site.reports), _DRILLS_S)


_PLANS: dict[str, Callable[[TopologyRequest], Plan]] = {
    "plan": lambda request: plan(request.derive(PlanRequest)),
    "drift": drift,
}


async def _asked(site: Site, kind: str) -> Inquiry[Plan]:
    return await site.inquiries.asked(kind, partial(_PLANS[kind], site.request))


async def _plan(request: Request) -> Response:
    site = _site(request)
    inquiries = {kind: await _asked(site, kind) for kind in _PLANS}

    def values() -> Values:
        plans = {kind: inquiry.value for kind, inquiry in inquiries.items()}
        return {
            "inquiries": inquiries,
            "summaries": {kind: summary_line(plan) if plan else "" for kind, plan in plans.items()},
            "changes": {
                kind: pages.rows(shown_changes(plan) if plan else ()) for kind, plan in plans.items()
            },
            "words": WORDS,
        }

    return site.page("plan", request, values)


async def _plan_again(request: Request) -> Response:
    site = _site(request)
    for kind, ask in _PLANS.items():
        site.inquiries.again(kind, partial(ask, site.request))
    return RedirectResponse("/plan", status_code=303)


async def _plan_document(request: Request) -> Response:
    """The whole plan, as `repl plan --html` writes it. Its own script alone may run, in a sandbox."""
    site = _site(request)
    kind = request.query_params.get("kind", "plan")
    if kind not in _PLANS:
        raise pages.NotFound(f"There is no plan of the kind {kind}.")
    made = (await _asked(site, kind)).value
    if made is None:
        return RedirectResponse("/plan", status_code=303)
    page = html(made)
    script = _SCRIPT.search(page)
    assert script is not None, "the page of a plan has one script"
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none';"
        " form-action 'none'; frame-ancestors 'none'; sandbox allow-scripts"
    )
    return HTMLResponse(page, headers={"content-security-policy": policy})


async def _history(request: Request) -> Response:
    site = _site(request)
    pending = site.inquiries.asked(
        "history", partial(history, site.request.derive(HistoryRequest)), _HISTORY_S
    )
    inquiry, drills = await asyncio.gather(pending, _drills(site))

    def values() -> Values:
        applies = inquiry.value.applies if inquiry.value is not None else ()
        newest = applies[::-1]
        wanted = request.query_params.get("id", "")
        selected = next((applied for applied in newest if applied.id == wanted), None) if wanted else None
        if wanted and selected is None and inquiry.at_ms is not None:
            raise pages.NotFound(f"No cluster remembers an apply {wanted}.")
        return {
            "inquiry": inquiry,
            "applies": pages.rows(newest, request.query_params),
            "one": selected,
            "one_text": history_words.one_text(selected) if selected is not None else "",
            "ended": history_words.ended,
            "counts": history_words.counts,
            "flow_states": history_words.flow_states,
            "asked_drills": drills,
            "drills": drills.value,
            "drill_rows": pages.rows(drills.value.drills if drills.value is not None else ()),
        }

    return site.page("history", request, values)


async def _status_json(request: Request) -> Response:
    """What `repl status --json` prints, of the last reading. `old`: it must not be taken for the present."""
    feed = _site(request).feed
    reading = feed.reading
    if reading is None:
        return PlainTextResponse(
            "The clusters are being read for the first time.\n", 503, {"retry-after": "2"}
        )
    page = {**document(reading.status, reading.verdicts), "old": feed.old(now_ms())}
    return Response(msgspec.json.encode(page), media_type="application/json")


async def _healthz(request: Request) -> Response:
    if _site(request).feed.old(now_ms()):
        return PlainTextResponse("The status is not being read.\n", 503)
    return PlainTextResponse("ok\n")


async def _events(request: Request) -> Response:
    """An event for each change; between them a comment, so that a lost connection is noticed."""
    site = _site(request)
    if site.streams >= MOST_STREAMS:
        return PlainTextResponse("Too many viewers.\n", 503, {"retry-after": "60"})

    async def stream() -> AsyncIterator[bytes]:
        site.streams += 1
        try:
            seen = site.feed.changes
            yield b"retry: 2000\nevent: hello\ndata: %d\n\n" % seen
            while not site.ending:
                changed = await site.feed.change(seen, _STILL_THERE_S)
                seen = site.feed.changes
                yield b"event: change\ndata: %d\n\n" % seen if changed else b": still there\n\n"
        finally:
            site.streams -= 1

    return StreamingResponse(stream(), media_type="text/event-stream", headers={"x-accel-buffering": "no"})


async def _login(request: Request) -> Response:
    site = _site(request)
    if request.method == "POST":
        answer = await log_in(request, site.policy)
        if answer is not None:
            return answer
        return site.page("login", request, lambda: {"wrong": True}, 401)
    if site.policy.knows(request.headers):
        return RedirectResponse("/", status_code=303)
    return site.page("login", request, lambda: {"wrong": False})


async def _logout(_request: Request) -> Response:
    return log_out()


async def _not_found(request: Request, wrong: Exception) -> Response:
    if not _site(request).policy.knows(request.headers):
        return PlainTextResponse("Not found\n", 404)
    text = str(wrong) if isinstance(wrong, pages.NotFound) else "There is no such page."
    code = wrong.status_code if isinstance(wrong, HTTPException) else 404
    return _site(request).page("error", request, lambda: {"text": text, "code": code}, code)


async def _failed(request: Request, _wrong: Exception) -> Response:
    text = "This page could not be made: a mistake in repl. The server's output has its traceback."
    return _site(request).page("error", request, lambda: {"text": text, "code": 500}, 500)


def application(site: Site) -> ASGIApp:
    """Returns the application. The feed runs as long as it does.

    The gate is around everything, also around the page of an unexpected exception.
    """

    @asynccontextmanager
    async def life(_app: Starlette) -> AsyncIterator[None]:
        site.feed.start()
        try:
            yield
        finally:
            site.inquiries.stop()
            await site.feed.stop()

    app = Starlette(
        routes=[
            Route("/", _page("overview", _overview)),
            Route("/flow", _page("flow", _flow)),
            Route("/topic", _page("topic", _topic)),
            Route("/job", _page("job", _job)),
            Route("/groups", _page("groups", _groups)),
            Route("/group", _page("group", _group)),
            Route("/search", _page("search", _search)),
            Route("/plan", _plan),
            Route("/plan/again", _plan_again, methods=["POST"]),
            Route("/plan/document", _plan_document),
            Route("/history", _history),
            Route("/status.json", _status_json),
            Route("/events", _events),
            Route("/healthz", _healthz),
            Route("/login", _login, methods=["GET", "POST"]),
            Route("/logout", _logout, methods=["POST"]),
            Mount("/static", StaticFiles(directory=FOLDER / "static")),
        ],
        middleware=[Middleware(GZipMiddleware, minimum_size=2_000, compresslevel=4)],
        exception_handlers={HTTPException: _not_found, pages.NotFound: _not_found, Exception: _failed},
        lifespan=life,
    )
    app.state.site = site
    return Gate(app, site.policy)

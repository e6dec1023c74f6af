"""Who may see the pages: addresses, tokens, cookies, host names, other sites."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.datastructures import Headers

from planner.model.diagnostic import Failure
from planner.ui import app
from planner.ui.access import COOKIE, AccessPolicy, read_token
from planner.ui.server import access_policy, listen, url_of
from runtime.contract.http_host import is_loopback, names_this_server
from tests.planner.render import test_status as scenes
from tests.planner.ui.serving import Visited, fresh, serving

pytestmark = pytest.mark.slow

TOKEN = "t0ken-of-sixteen-and-more"
GUARDED = AccessPolicy(TOKEN, ("repl.example.com",))


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    return file


@pytest.fixture(scope="module")
def visited() -> Iterator[Visited]:
    """A server that is open to all who reach it."""
    with serving(fresh(scenes.copying())) as made:
        yield made


@pytest.fixture(scope="module")
def guarded() -> Iterator[Visited]:
    """A server with a token."""
    with serving(fresh(scenes.copying()), policy=GUARDED) as made:
        yield made


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.1", "repl.example.com"])
def test_other_machines_need_a_token(address, token_file) -> None:
    with pytest.raises(Failure, match="need a token — add --token-file FILE, and put TLS in front"):
        access_policy(address)

    assert access_policy(address, token_file=token_file).token == TOKEN


@pytest.mark.parametrize("other", ["", "a b=1; ", 'odd="{"; ', "[]=x; ", "lonely; "])
def test_a_session_lasts_beside_odd_cookies_of_the_host(other) -> None:
    assert GUARDED.knows(Headers({"cookie": f"{other}{COOKIE}={GUARDED.session()}"}))
    assert not GUARDED.knows(Headers({"cookie": f"{other}{COOKIE}=wrong"}))


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_needs_none(address) -> None:
    assert is_loopback(address)
    assert access_policy(address).token is None


@pytest.mark.parametrize(
    "text", ["", "short", "with spaces in between it", "x" * 5000, "ümlauts-are-no-token-at-all"]
)
def test_what_is_no_token_is_refused(text, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(text)

    with pytest.raises(Failure, match=r"holds no token of 16 printable characters .* openssl rand"):
        read_token(file)


def test_a_token_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="No such file or directory"):
        read_token(tmp_path / "none")


def test_a_policy_does_not_show_its_token() -> None:
    assert TOKEN not in repr(GUARDED)
    assert TOKEN not in GUARDED.session()


def test_a_taken_port_is_said_with_the_way_out() -> None:
    taken = listen(0)
    try:
        port = taken.getsockname()[1]
        assert url_of(taken) == f"http://127.0.0.1:{port}/"
        with pytest.raises(Failure, match=f"127.0.0.1:{port} is taken: .* — name another: --port 8081"):
            listen(port)
    finally:
        taken.close()


@pytest.mark.parametrize(
    ("address", "said"),
    [("192.0.2.1", "is no address of this machine"), ("no such host", "name an address of this machine")],
)
def test_a_wrong_address_is_said(address, said) -> None:
    with pytest.raises(Failure, match=said):
        listen(0, address)


@pytest.mark.parametrize(
    ("host", "served"),
    [
        ("127.0.0.1:8080", True),
        ("localhost", True),
        ("LOCALHOST:1", True),
        ("[::1]:8080", True),
        ("192.0.2.7", True),
        ("repl.example.com", True),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example:8080", False),
        ("", False),
        ("[", False),
    ],
)
def test_only_its_own_names_are_served(host, served) -> None:
    assert names_this_server(host, GUARDED.hosts) is served


def test_a_rebound_name_reads_nothing(visited) -> None:
    answer = visited.ask("/status.json", Host="evil.example")

    assert answer.status == 421
    assert "orders" not in answer.text


@pytest.mark.parametrize(
    "path", ["/", "/status.json", "/events", "/healthz", "/plan", "/nowhere", "/flow?name=one"]
)
def test_without_the_token_nothing_is_told(path, guarded) -> None:
    browser = guarded.ask(path)
    program = guarded.ask(path, Accept="*/*")
    wrong = guarded.ask(path, Accept="*/*", Authorization="Bearer another-token-of-sixteen")

    assert (browser.status, browser.headers["location"]) == (303, "/login")
    assert (program.status, program.headers["www-authenticate"]) == (401, "Bearer")
    assert wrong.status == 401


@pytest.mark.parametrize("path", ["/login", "/static/none", "/static/ui.css", "/static/../app.py"])
def test_open_paths_tell_nothing_of_the_topology(path, guarded) -> None:
    text = guarded.ask(path).text

    assert "shop" not in text
    assert "from planner" not in text


def test_a_program_shows_the_token(guarded) -> None:
    assert guarded.ask("/flow?name=one", Authorization=f"bearer {TOKEN}").status == 200


def test_a_person_logs_in_and_out(guarded) -> None:
    here = {
        "Content_Type": "application/x-www-form-urlencoded",
        "Origin": f"http://127.0.0.1:{guarded.port}",
    }
    wrong = guarded.ask("/login", "POST", "token=not-the-right-one-at-all", **here)
    answer = guarded.ask("/login", "POST", f"token={TOKEN}", **here)
    cookie = answer.headers["set-cookie"]
    shown = guarded.ask("/flow?name=one", Cookie=cookie.split(";")[0])
    forged = guarded.ask("/flow?name=one", Cookie=f"repl_ui={TOKEN}")
    behind_tls = guarded.ask(
        "/login",
        "POST",
        f"token={TOKEN}",
        **{**here, "Origin": "https://repl.example.com", "Host": "repl.example.com"},
    )
    out = guarded.ask("/logout", "POST", Cookie=cookie.split(";")[0])

    assert wrong.status == 401
    assert "This is not the token" in wrong.text
    assert (answer.status, answer.headers["location"]) == (303, "/")
    assert TOKEN not in cookie
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "Secure" not in cookie
    assert "Secure" in behind_tls.headers["set-cookie"]
    assert (shown.status, forged.status, out.status) == (200, 303, 303)


@pytest.mark.parametrize(
    "headers", [{"Origin": "https://evil.example"}, {"Sec_Fetch_Site": "cross-site"}, {"Origin": "null"}]
)
def test_other_sites_send_no_forms(headers, visited) -> None:
    assert visited.ask("/plan/again", "POST", "", **headers).status == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize("path", ["/plan", "/group?name=g", "/status.json", "/events", "/static/ui.js"])
def test_a_page_of_another_site_reads_nothing_and_begins_nothing(site: str, path: str, visited) -> None:
    """An image or a script of a hostile page could begin plans, also where it can't read the answer."""
    before = len(visited.site.inquiries)
    answer = visited.ask(path, Sec_Fetch_Site=site, Sec_Fetch_Mode="no-cors", Sec_Fetch_Dest="image")
    framed = visited.ask(path, Sec_Fetch_Site=site, Sec_Fetch_Mode="navigate", Sec_Fetch_Dest="iframe")
    begun = len(visited.site.inquiries) - before

    assert (answer.status, framed.status) == (403, 403)
    assert "orders" not in answer.text
    assert begun == 0


@pytest.mark.parametrize(
    ("path", "link"),
    [
        ("/plan", 'href="/plan"'),
        ('/search?q="><script>', 'href="/search?q=&quot;&gt;&lt;script&gt;"'),
        ("//evil.example/x", 'href="/evil.example/x"'),
    ],
)
def test_a_link_on_another_site_begins_nothing_before_the_viewer_follows_ours(path, link, visited) -> None:
    navigation = {"Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
    before = len(visited.site.inquiries)
    led = visited.ask(path, Sec_Fetch_Site="cross-site", **navigation)
    begun = len(visited.site.inquiries) - before
    followed = visited.ask("/flow?name=one", Sec_Fetch_Site="same-origin", **navigation)
    typed = visited.ask("/flow?name=one", Sec_Fetch_Site="none", **navigation)

    assert (led.status, followed.status, typed.status) == (403, 200, 200)
    assert link in led.text
    assert "<script>" not in led.text
    assert begun == 0


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS"])
def test_the_pages_are_read_only(method, visited) -> None:
    assert visited.ask("/", method).status == 405
    assert visited.ask("/", "POST", "").status == 405


def test_every_answer_has_the_headers(visited) -> None:
    answers = [visited.ask(path) for path in ("/", "/nowhere", "/static/ui.js", "/status.json")]
    answers.append(visited.ask("/", Host="evil.example"))

    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "same-origin"
        assert answer.headers["cache-control"] == "no-store"
        assert "server" not in answer.headers


def test_the_page_of_an_unexpected_exception_has_the_headers_of_every_page(monkeypatch) -> None:
    async def broken(_request: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(app, "_status_json", broken)
    with serving() as visited:
        answer = visited.ask("/status.json")
    assert answer.status == 500
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["cache-control"] == "no-store"

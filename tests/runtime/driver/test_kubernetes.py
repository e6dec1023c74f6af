"""What a driver on Kubernetes says of its executors, by the answers of a server in the form of the API."""

import asyncio
import json
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from runtime.contract.launching import EXECUTOR_POD
from runtime.driver.kubernetes import KubernetesExecutors
from tests.certificates import issued

TEMPLATE = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"labels": {"a": "1", "b": "2"}},
    "spec": {"containers": []},
}
EXCEEDED = 'pods "x" is forbidden: exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1'


class Api:
    """The API of pods: it keeps the requests, and answers each method with a status and a body."""

    def __init__(self, folder: Path) -> None:
        self.requests: list[tuple[str, str, Any]] = []
        self.answers: dict[str, tuple[int, Any]] = {"GET": (200, {"items": []})}
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(size)) if size else None
                assert self.headers["Authorization"] == "Bearer of the pod"
                api.requests.append((self.command, self.path, body))
                status, answer = api.answers.get(self.command, (200, {}))
                text = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_POST = do_DELETE = do_GET  # noqa: N815

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        authority = issued("authority")
        server = issued("api", authority, host="localhost")
        (folder / "ca.crt").write_bytes(authority.certificate_pem)
        (folder / "api.pem").write_bytes(server.key_pem + server.certificate_pem)
        (folder / "token").write_text("of the pod")
        (folder / "namespace").write_text("kafka")
        (folder / "executor.json").write_text(json.dumps(TEMPLATE))
        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "api.pem")
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        environ = {
            "KUBERNETES_SERVICE_HOST": "localhost",
            "KUBERNETES_SERVICE_PORT": str(self.server.server_port),
            EXECUTOR_POD: str(folder / "executor.json"),
        }
        self.executors = KubernetesExecutors(1, environ, folder)


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    api = Api(tmp_path)
    yield api
    api.server.shutdown()
    api.server.server_close()


def test_the_executors_of_the_driver_before_are_deleted_by_their_labels(api: Api):
    api.executors.remove()
    ((method, path, _),) = api.requests
    assert method == "DELETE"
    assert path.startswith("/api/v1/namespaces/kafka/pods?labelSelector=a%3D1%2Cb%3D2&")


@pytest.mark.parametrize(
    "ended",
    [{"metadata": {}, "status": {"phase": "Failed"}}, {"metadata": {"deletionTimestamp": "x"}, "status": {}}],
)
def test_a_pod_that_has_ended_is_none(api: Api, ended: dict[str, Any]):
    api.answers |= {"GET": (200, {"items": [ended]}), "POST": (403, {"message": EXCEEDED})}
    assert api.executors.waits_for() == f"Kubernetes says: {EXCEEDED}"


def test_without_a_pod_the_api_server_says_why_it_takes_none(api: Api):
    api.answers["POST"] = (403, {"message": f"{EXCEEDED}\x1b[2J"})
    assert api.executors.waits_for() == f"Kubernetes says: {EXCEEDED} [2J"
    method, path, tried = api.requests[-1]
    assert (method, path) == ("POST", "/api/v1/namespaces/kafka/pods?dryRun=All")
    assert tried["spec"] == TEMPLATE["spec"]
    api.answers["POST"] = (201, {})
    assert api.executors.waits_for() == ""


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]}, ""),
        ({"containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}, ""),
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/1 nodes"}]},
            "no node takes the executor's pod: 0/1 nodes",
        ),
        (
            {"containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull", "message": "gone"}}}]},
            "the executor's container can't be started: ErrImagePull: gone",
        ),
    ],
)
def test_a_pod_that_does_not_run_says_why(api: Api, status: dict[str, Any], why: str):
    api.answers["GET"] = (200, {"items": [{"metadata": {}, "status": status}]})
    assert api.executors.waits_for() == why


async def test_all_slots_share_one_question_and_none_waits_for_its_answer(api: Api):
    api.answers["POST"] = (403, {"message": EXCEEDED})
    began = time.monotonic()
    assert {api.executors.newest_reason() for _ in range(50)} == {""}
    while not (why := api.executors.newest_reason()):
        await asyncio.sleep(0.01)
    assert why == f"Kubernetes says: {EXCEEDED}"
    assert [api.executors.newest_reason() for _ in range(50)] == [why] * 50
    await asyncio.to_thread(api.executors.waits_for)
    rounds = 2 + int((time.monotonic() - began) / 5)  # the last one by this test
    assert len(api.requests) <= 2 * rounds


def test_an_api_server_that_is_away_is_named(api: Api):
    api.server.shutdown()
    api.server.server_close()
    assert api.executors.waits_for().startswith("Kubernetes says: no answer of the API server")
    api.executors.remove()  # Spark reports what it can't do

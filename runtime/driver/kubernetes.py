"""Says why Kubernetes runs no executor for a driver yet, and removes those of the driver before.

Spark asks for executors and only logs a refusal, so the driver asks the API server itself, with the token of
its pod: about the pods of its executors, or whether it would take another one.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from runtime.contract.launching import CONTAINER_STARTS, EXECUTOR_POD, one_line

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TIMEOUT_S = 5.0
_ASK_AGAIN_S = 5.0
_MOST_CHARACTERS = 400


class ApiError(Exception):
    """The API server refused a request, or did not answer; the text is its message."""


class KubernetesExecutors:
    """Asks the API server for the executors of a job. Its calls block, for seconds at most.

    The pods are those with the labels of the template that Spark completes; `wanted` is their number. Images
    hold what Spark ships elsewhere, so nothing is `shipped`.
    """

    shipped: Final = 0

    def __init__(self, wanted: int, environ: Mapping[str, str], account: Path = _ACCOUNT) -> None:
        self._wanted = wanted
        self._host = environ["KUBERNETES_SERVICE_HOST"]
        self._port = int(environ["KUBERNETES_SERVICE_PORT"])
        self._template: dict[str, Any] = json.loads(Path(environ[EXECUTOR_POD]).read_bytes())
        labels: dict[str, str] = self._template["metadata"]["labels"]
        self._selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
        self._account = account
        self._asking: asyncio.Future[str] | None = None
        self._asked_at = 0.0
        self._newest = ""

    def newest_reason(self) -> str:
        """Returns what `waits_for` returned last, for all slots, without waiting for the API server.

        A thread asks again where that is some seconds old.
        """
        if self._asking is not None and self._asking.done():
            self._newest, self._asking = self._asking.result(), None
        if self._asking is None and time.monotonic() - self._asked_at >= _ASK_AGAIN_S:
            self._asked_at = time.monotonic()
            self._asking = asyncio.ensure_future(asyncio.to_thread(self.waits_for))
        return self._newest

    def remove(self) -> None:
        """Deletes the pods of executors that a driver before has left: they would keep their resources.

        A failure is Spark's to report: it asks the same API server next.
        """
        query = {"labelSelector": self._selector, "gracePeriodSeconds": "1"}
        try:
            self._call("DELETE", query)
        except ApiError:
            return

    def waits_for(self) -> str:
        """Returns why an executor does not run; "" if all do, or start."""
        try:
            pods = self._call("GET", {"labelSelector": self._selector})
            alive = [
                pod
                for pod in pods["items"]
                if pod["status"].get("phase") not in ("Succeeded", "Failed")
                and "deletionTimestamp" not in pod["metadata"]
            ]
            reasons = [reason for pod in alive if (reason := _reason(pod["status"]))]
            if reasons or len(alive) >= self._wanted:
                return reasons[0] if reasons else ""
            # The API server refuses another pod for the reason for which it refuses Spark's.
            tried = {**self._template["metadata"], "generateName": "repl-executor-"}
            self._call("POST", {"dryRun": "All"}, {**self._template, "metadata": tried})
        except ApiError as error:
            return f"Kubernetes says: {error}"
        return ""

    def _call(
        self, method: str, query: Mapping[str, str], body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Calls the API of pods. Raises ApiError."""
        try:
            namespace = (self._account / "namespace").read_text()
            headers = {"Authorization": f"Bearer {(self._account / 'token').read_text()}"}
            trusted = ssl.create_default_context(cafile=str(self._account / "ca.crt"))
            connection = http.client.HTTPSConnection(
                self._host, self._port, timeout=_TIMEOUT_S, context=trusted
            )
            try:
                path = f"/api/v1/namespaces/{namespace}/pods?{urlencode(query)}"
                text = json.dumps(body) if body is not None else None
                connection.request(method, path, text, headers | {"Content-Type": "application/json"})
                answer = connection.getresponse()
                answered: dict[str, Any] = json.loads(answer.read())
            finally:
                connection.close()
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ApiError(f"no answer of the API server: {error}") from error
        if answer.status >= http.client.BAD_REQUEST:
            raise ApiError(one_line(str(answered.get("message", answer.reason)), _MOST_CHARACTERS))
        return answered


def _reason(status: Mapping[str, Any]) -> str:
    """Returns why the pod of an executor does not run; "" where it runs, or starts."""
    for condition in status.get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            said = one_line(str(condition.get("message", "")), _MOST_CHARACTERS)
            return f"no node takes the executor's pod: {said}"
    for container in status.get("containerStatuses", ()):
        waiting = container.get("state", {}).get("waiting", {})
        if waiting and waiting.get("reason") not in CONTAINER_STARTS:
            said = one_line(f"{waiting.get('reason', '')}: {waiting.get('message', '')}", _MOST_CHARACTERS)
            return f"the executor's container can't be started: {said}"
    return ""

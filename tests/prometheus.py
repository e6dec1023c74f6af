"""A real Prometheus on this machine: scrapes once a second, and answers queries."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from tests.records import wait_for

# Installed, or where `make prometheus` puts it.
_BESIDE = Path(sys.prefix) / "prometheus" / "usr" / "bin"


def program(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path=str(_BESIDE))
    assert found is not None, f"{name} is not here: run make prometheus"
    return found


def promtool(*arguments: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program("promtool"), *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


class Prometheus:
    def __init__(self, folder: Path, port: int, targets: Iterable[str], rules: Path) -> None:
        self._url = f"http://127.0.0.1:{port}/api/v1"
        config = folder / "prometheus.yaml"
        scrape = {"job_name": "repl", "static_configs": [{"targets": list(targets)}]}
        config.write_text(
            yaml.safe_dump(
                {
                    "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                    "rule_files": [str(rules)],
                    "scrape_configs": [scrape],
                }
            )
        )
        command = [
            program("prometheus"),
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=error",
        ]
        with (folder / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each series that an instant query returns."""
        data = self._get("query", query=expression)
        if data["resultType"] == "scalar":
            return [({}, float(data["result"][1]))]
        return [(one["metric"], float(one["value"][1])) for one in data["result"]]

    def value(self, expression: str) -> float | None:
        """Of the only series that there is."""
        found = self.query(expression)
        assert len(found) <= 1, found
        return found[0][1] if found else None

    def rules(self) -> list[dict[str, Any]]:
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def await_up(self) -> None:
        wait_for(lambda: self._process.poll() is None and self._up(), 180)

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(120)

    def _up(self) -> bool:
        try:
            return self.value('min(up{job="repl"})') == 1
        except OSError:
            return False

    def _get(self, path: str, **parameters: str) -> dict[str, Any]:
        asked = urllib.parse.urlencode(parameters).encode() or None
        with urllib.request.urlopen(f"{self._url}/{path}", data=asked, timeout=60) as answer:
            found: dict[str, Any] = json.load(answer)["data"]
        return found

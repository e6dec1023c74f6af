"""`make release`: what it refuses, and the tag, files, checksums and signatures that it makes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.dist.conftest import ROOT, sources

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

VENV = Path(sys.executable).parent.parent


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository of its own with one commit of these sources; it has no environment of its own.

    What the environment is made from is older than the environment: make leaves that as it is.
    """
    folder = sources(tmp_path / "checkout")
    for name in ("requirements.lock", "pyproject.toml"):
        os.utime(folder / name, (0, 0))
    git(folder, "init", "--quiet", "--initial-branch", "main")
    git(folder, "config", "user.name", "releaser")
    git(folder, "config", "user.email", "releases@example.org")
    commit(folder)
    return folder


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True).stdout


def commit(folder: Path) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "sources")


def release(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    command = ["make", "release", f"VENV={VENV}", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_release_is_refused_where_something_does_not_fit(checkout: Path) -> None:
    assert "pyproject.toml has another version than 9.9.9" in release(checkout, "VERSION=9.9.9").stderr
    (checkout / "planner" / "new.py").touch()
    assert "commit them first" in release(checkout, "VERSION=0.1.0").stderr
    commit(checkout)
    git(checkout, "tag", "v0.1.0")
    assert "is there already" in release(checkout, "VERSION=0.1.0").stderr
    git(checkout, "tag", "--delete", "v0.1.0")
    changelog = checkout / "CHANGELOG.md"
    changelog.write_text(changelog.read_text().replace("## 0.1.0", "## 0.2.0\n\n## 0.1.0"))
    commit(checkout)
    assert "does not begin with: ## 0.1.0 (unreleased)" in release(checkout, "VERSION=0.1.0").stderr
    assert git(checkout, "tag") == ""


def test_a_release_is_tagged_built_listed_and_signed(checkout: Path, tmp_path: Path) -> None:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    done = release(checkout, "VERSION=0.1.0", f"RELEASE_KEY={key}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert git(checkout, "status", "--porcelain") == ""
    assert git(checkout, "describe", "--exact-match", "HEAD") == "v0.1.0\n"
    assert "(unreleased)" not in git(checkout, "show", "v0.1.0:CHANGELOG.md")

    dist = checkout / "dist"
    assert {path.name for path in dist.iterdir()} == {
        "kafka_repl-0.1.0-py3-none-any.whl",
        "kafka_repl-0.1.0.tar.gz",
        "kafka-repl-0.1.0.cdx.json",
        "SHA256SUMS",
        "SHA256SUMS.sig",
    }
    subprocess.run(["sha256sum", "--quiet", "--strict", "--check", "SHA256SUMS"], cwd=dist, check=True)
    signers = tmp_path / "signers"
    signers.write_text(f"releases@example.org {key.with_suffix('.pub').read_text()}")
    verify = ["ssh-keygen", "-Y", "verify", "-f", str(signers)]
    verify += ["-I", "releases@example.org", "-n", "file", "-s", str(dist / "SHA256SUMS.sig")]
    with (dist / "SHA256SUMS").open() as sums:
        subprocess.run(verify, stdin=sums, check=True)
    allowed = f"gpg.ssh.allowedSignersFile={signers}"
    git(checkout, "-c", "gpg.format=ssh", "-c", allowed, "tag", "--verify", "v0.1.0")

    listed = json.loads((dist / "kafka-repl-0.1.0.cdx.json").read_text())
    assert listed["bomFormat"] == "CycloneDX"
    locked = (ROOT / "requirements.lock").read_text()
    versions = {one["name"].lower(): one["version"] for one in listed["components"]}
    for name in ("confluent-kafka", "pyspark", "obstore", "starlette", "pytest"):
        assert f"\n{name}=={versions[name]} " in locked
    assert not {"mypy", "ruff", "pip-tools"} & set(versions)

"""The hooks of pre-commit, run by pre-commit itself in a repository with a topology."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.planner.config.given import CLUSTERS

HERE = Path(__file__).parents[3]
TOPIC = "topics: [{name: orders, cluster: dc1}]\n"


def run(folder: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    env["PRE_COMMIT_HOME"] = str(folder.parent / "cache")
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


@pytest.mark.long
def test_a_commit_with_a_mistake_is_refused_and_says_where(tmp_path: Path) -> None:
    """The hook is the committed one; `language: system` takes this environment in place of a new one."""
    repository = tmp_path / "shop"
    topology = repository / "topology" / "t.yaml"
    topology.parent.mkdir(parents=True)
    commit = run(HERE, "git", "rev-parse", "HEAD").stdout.strip()
    (repository / ".pre-commit-config.yaml").write_text(
        f"repos: [{{repo: {HERE}, rev: {commit}, hooks: [{{id: repl-validate, language: system}}]}}]\n"
    )
    run(repository, "git", "init", "--quiet")
    for text, passes, says in (
        (CLUSTERS + TOPIC, True, "Passed"),
        (CLUSTERS + TOPIC.replace("dc1", "dc9"), False, 'topology/t.yaml:6:34: there is no cluster "dc9"'),
    ):
        topology.write_text(text)
        run(repository, "git", "add", ".")
        done = run(repository, sys.executable, "-m", "pre_commit", "run", "repl-validate")
        assert (done.returncode == 0) is passes, done.stdout + done.stderr
        assert says in done.stdout

"""Git is asked for the commit of a topology, and nothing that its author committed is run for that."""

import subprocess
from pathlib import Path

import pytest

from planner.workflows.applying.session import git_commit

CONFIG = """[core]
\trepositoryformatversion = 0
\tbare = false
\tworktree = .
\tfsmonitor = "touch {}; false"
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A clone with the folder of a topology."""
    made = tmp_path / "clone"
    (made / "team" / "topology").mkdir(parents=True)
    (made / "team" / "topology" / "t.yaml").write_text("name: shop\n")
    author = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for words in (("init", "-q"), ("add", "."), (*author, "commit", "-qm", "first")):
        subprocess.run(["git", *words], cwd=made, check=True)
    return made


@pytest.mark.parametrize("at", ["team/topology", "team"])
def test_a_folder_that_looks_like_a_repository_runs_no_command(at: str, checkout: Path) -> None:
    ran = checkout.parent / "ran"
    fake = checkout / at
    for folder in ("objects", "refs/heads"):
        (fake / folder).mkdir(parents=True)
    (fake / "HEAD").write_text("ref: refs/heads/main\n")
    (fake / "config").write_text(CONFIG.format(ran))

    assert git_commit(checkout / "team" / "topology", edited=False) is None
    assert not ran.exists()


def test_the_commit_of_a_clone_and_of_a_working_tree_beside_it(checkout: Path) -> None:
    subprocess.run(["git", "worktree", "add", "-q", "../tree"], cwd=checkout, check=True)
    for clone in (checkout, checkout.parent / "tree"):
        commit = git_commit(clone / "team" / "topology", edited=False)
        assert commit is not None
        assert len(commit) == 40
        (clone / "team" / "topology" / "t.yaml").write_text("name: other\n")
        assert git_commit(clone / "team" / "topology", edited=False) == f"{commit}-dirty"

"""The lease of a cluster in the name of the user, and the commit of the topology.

Only the holder of the lease changes a cluster: an apply, or a replay of salvaged records.
"""

import getpass
import os
import socket
import subprocess
import uuid
from pathlib import Path

from planner.kafka import ClusterEndpoint
from planner.state.lease import TTL_MS, Lease, LeaseHolder
from planner.workflows.interaction import LeaseAwaited, ProgressHandler


def leased(
    endpoint: ClusterEndpoint,
    *,
    name: str,
    topology: str,
    plan: str,
    lock_timeout_ms: int,
    progress: ProgressHandler,
    ttl_ms: int = TTL_MS,
) -> Lease:
    """Acquires the lease of a cluster. Failure where another holder keeps it beyond the lock timeout.

    `name` identifies the holder, `plan` what the holder executes.
    """
    holder = LeaseHolder(
        id=f"{name}-{uuid.uuid4().hex[:6]}",
        user=user(),
        host=socket.gethostname(),
        pid=os.getpid(),
        topology=topology,
        plan=plan,
    )
    return Lease(endpoint, holder, ttl_ms).acquire(
        lock_timeout_ms / 1000, lambda held: progress(LeaseAwaited(endpoint.cluster, held))
    )


def user() -> str:
    """Returns the name of the user, or the user id in a container without names."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def git_commit(folder: Path, *, edited: bool) -> str | None:
    """Returns the commit of the topology's folder, marked `-dirty` if it was edited; None outside of Git."""
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        edited = edited or bool(_git(folder, "status", "--porcelain", "--", "."))
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{commit}-dirty" if edited else commit


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10, check=True
    )
    return done.stdout.strip()

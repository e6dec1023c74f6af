"""The lease of a cluster, asked for by a command: of those that write, one at a time."""

import getpass
import os
import socket
import time
import uuid

import click

from planner.kafka import ClusterEndpoint
from planner.render.escape import one_line
from planner.state.lease import Lease
from planner.state.lease_log import TTL_MS, LeaseHolder, LeaseState


def leased(
    endpoint: ClusterEndpoint,
    *,
    name: str,
    topology: str,
    plan: str,
    lock_timeout_ms: int,
    ttl_ms: int = TTL_MS,
) -> Lease:
    """`name` is the holder's, `plan` what he carries out. Failure when another one holds it for too long."""
    holder = LeaseHolder(
        id=f"{name}-{uuid.uuid4().hex[:6]}",
        user=user(),
        host=socket.gethostname(),
        pid=os.getpid(),
        topology=topology,
        plan=plan,
    )

    def waiting(held: LeaseState) -> None:
        since = time.strftime("%H:%M:%S UTC", time.gmtime(held.since_ms / 1000))
        who = one_line(f"{held.holder.user}@{held.holder.host}, pid {held.holder.pid}")
        click.echo(f"Waiting for another apply to {endpoint.cluster}: {who}, since {since} ...", err=True)

    return Lease(endpoint, holder, ttl_ms).acquire(lock_timeout_ms / 1000, waiting)


def user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())  # a container's user often has no name

"""Runs a drill of a topology and returns its report: on lab clusters, or at the live ones."""

import datetime
from importlib.metadata import version

from msgspec import structs

from planner.drill import features, live, standard
from planner.drill.routes import clusters_to_lose
from planner.drill.scenario_record import Progress
from planner.model.diagnostic import Failure, error
from planner.model.drill import LIVE, DrillReport
from planner.workflows.requests import DrillRequest
from planner.workflows.topology import load_topology
from runtime.contract.extras import DISTRIBUTION


def rehearse(request: DrillRequest, progress: Progress) -> DrillReport:
    """Runs the scenarios of features, else the standard drill, which also has the limits of the topology.

    Failure: the topology has errors, the lab can't be started, or live clusters do not answer.
    """
    topology = load_topology(request)
    started = datetime.datetime.now(datetime.UTC)
    if request.features is not None:
        notes, scenarios = features.rehearse_features(request, topology, request.features, progress)
    elif not clusters_to_lose(topology):
        raise Failure(error("no flow runs, so there is nothing to rehearse", "declare a flow, or resume one"))
    else:
        declared = topology.drill
        request = structs.replace(
            request,
            max_rto_ms=declared.max_rto_ms if request.max_rto_ms is None else request.max_rto_ms,
            max_rpo=declared.max_rpo if request.max_rpo is None else request.max_rpo,
            load_ms=declared.load_ms if request.load_ms is None else request.load_ms,
        )
        drill = live.rehearse_live if request.against == LIVE else standard.rehearse_on_lab
        notes, scenarios = drill(request, topology, progress)
    return DrillReport(
        topology.name,
        topology.digest,
        started.strftime("%Y-%m-%dT%H:%M:%SZ"),
        version(DISTRIBUTION),
        notes,
        scenarios,
        topology.drill.every_ms,
        request.against,
        "" if request.features is None else request.features.resolve().name,
    )

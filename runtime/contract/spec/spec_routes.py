"""This module returns the routes of a job's spec: the topics of each flow of its topology, and their
names.
"""

from runtime.contract.spec import jobspec
from runtime.contract.spec.jobspec import FlowSpec, JobSpec, RouteSpec, SelectionSpec
from runtime.contract.spec.route import Route, Router
from runtime.contract.spec.selection import SelectionRules


def router_of(spec: JobSpec) -> Router:
    """Returns the names of the whole topology; a job whose spec holds no routes has only its own flows."""
    return Router(routes_of(spec))


def routes_of(spec: JobSpec) -> list[Route]:
    """Returns a route for each flow that the job knows."""
    known = {route.name for route in spec.routes}
    own = [_as_route(flow) for flow in spec.flows if flow.name not in known]
    return [_route(one) for one in (*spec.routes, *own)]


def _as_route(flow: FlowSpec) -> RouteSpec:
    return RouteSpec(
        name=flow.name,
        source=flow.source,
        destination=flow.destination,
        topics=flow.topics,
        rename=flow.rename,
    )


def _route(spec: RouteSpec) -> Route:
    undoes = _rules(spec.undoes) if spec.undoes is not None else None
    rename = jobspec.rename(spec.rename)
    return Route(spec.name, spec.source, spec.destination, _rules(spec.topics), rename, undoes)


def _rules(selection: SelectionSpec) -> SelectionRules:
    return SelectionRules(tuple(selection.include), tuple(selection.exclude), selection.default_exclude)

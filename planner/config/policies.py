"""Reads the policy file of an operator: rules that stand outside of every topology."""

from pathlib import Path

from planner.config.files import read_text
from planner.config.language.build import built
from planner.config.language.reader import ParsedRecord, ShapeReader
from planner.config.validation import check_rules
from planner.config.yaml_tree import documents
from planner.model.diagnostic import Failure, Severity, error
from planner.model.topology import OperatorPolicy, Rule
from runtime.contract.spec.shapes import record_of


def load_rules(file: Path) -> tuple[Rule, ...]:
    """Returns the rules of a policy file. Failure holds every mistake in it."""
    nodes, diagnostics = documents(read_text(file), str(file))
    if len(nodes) != 1:
        raise Failure(error(f"{file}: a policy file is one document", "begin it with rules:"))
    reader = ShapeReader()
    fields = reader.read(record_of(OperatorPolicy), nodes[0], "policy file")
    diagnostics = [*diagnostics, *reader.diagnostics]
    if isinstance(fields, ParsedRecord):
        diagnostics += check_rules(fields.get("rules") or ())
    if any(problem.severity is Severity.ERROR for problem in diagnostics):
        raise Failure(diagnostics)
    policy: OperatorPolicy = built(fields)
    return policy.rules

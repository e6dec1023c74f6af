"""Judges rules in CEL, of a topology and of its operator, when a plan is made and when it is applied.

The operator's rules come from `--policy` and REPL_POLICY. No change of a topology can change them.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from planner.config.load import load_rules
from planner.graph.messages import few
from planner.model.diagnostic import Diagnostic, ExitCode, Failure, error, warning
from planner.model.plan import Mode, Plan
from planner.model.topology import Rule
from planner.plan.document import json_tree
from planner.plan.make import with_diagnostics
from runtime.contract.extras import Extra, is_missing, missing_extra

POLICY = "REPL_POLICY"  # policy files, separated by commas
CODE = "policy"
MOST_RULES = 100
LONGEST_RULE = 4_000  # characters
WALL_S = 30.0  # the process itself ends after 10 s of CPU
_PROCESS = Path(__file__).with_name("rules_process.py")
_FIXED = "shorten it, or go by resource, which is judged once for each change"


def operator_rules(files: Sequence[Path]) -> tuple[Rule, ...]:
    """Returns the rules of these files and of those that REPL_POLICY names. Failure: one can't be read."""
    named = (Path(name.strip()) for name in os.environ.get(POLICY, "").split(",") if name.strip())
    return tuple(rule for file in dict.fromkeys([*named, *files]) for rule in load_rules(file))


def check_rules(rules: Sequence[Rule]) -> None:
    """Failure holds an error for each rule that can't be compiled."""
    diagnostics = [
        _not_computed(rule, answer) for rule, answer in _answers(rules, None) if answer.get("problem")
    ]
    if diagnostics:
        raise Failure(diagnostics)


def with_policy_verdicts(plan: Plan, files: Sequence[Path] = ()) -> Plan:
    """Returns the plan with a refusal or a warning for each rule that it breaks."""
    return with_diagnostics(plan, verdicts_on(plan, files))


def verdicts_on(plan: Plan, files: Sequence[Path]) -> tuple[Diagnostic, ...]:
    """Returns a refusal or a warning for each rule that the plan breaks."""
    rules = (*operator_rules(files), *plan.topology.policies.rules)
    if not rules or plan.inputs.mode is Mode.DRIFT:
        return ()
    tree = {key: value for key, value in json_tree(plan).items() if key != "steps"}
    return tuple(diagnostic for pair in _answers(rules, tree) for diagnostic in _found(*pair, tree))


def _found(rule: Rule, answer: dict[str, Any], tree: dict[str, Any]) -> Iterator[Diagnostic]:
    changes = tree["resource_changes"]
    if answer.get("problem"):
        where = changes[answer["at"]]["address"] if "at" in answer else None
        yield _not_computed(rule, answer, where)
        return
    broken = answer["broken"]
    if not broken:
        return
    addresses = [changes[index]["address"] for index in broken] if isinstance(broken, list) else []
    about = f"{few(addresses, 5)}: " if addresses else ""
    summary = f"{about}{rule.message} (rule {rule.name})"
    address = addresses[0] if len(addresses) == 1 else None
    if rule.deny is None:
        yield warning(summary, address=address, source=rule.source, code=CODE)
        return
    hint = "change the topology, or have the rule changed by whom it belongs to"
    yield error(summary, hint, address=address, source=rule.source, code=CODE, exit=ExitCode.REFUSED)


def _not_computed(rule: Rule, answer: dict[str, Any], where: str | None = None) -> Diagnostic:
    """Returns an error: a rule that can't be computed does not let a plan pass."""
    text = _words(answer["problem"])
    at = f" for {where}" if where else ""
    hint = (
        "ask has(…) before a key that may be missing"
        if "not found" in text
        else _HINTS.get(text, "correct it")
    )
    return error(f"the rule {rule.name} can't be computed{at}: {text}", hint, source=rule.source, code=CODE)


_STOPPED = "it takes more than 10 s of CPU or 1 GiB of memory"
_HINTS = {
    _STOPPED: _FIXED,
    "Iteration budget exceeded": _FIXED,
}


def _words(problem: str) -> str:
    """Returns the library's message on one line, with the place in the expression and without its status."""
    text = re.sub(r"^[A-Z_]+: (?=\S)|\s*\[[A-Z_]+\]\s*$", "", problem.strip())
    lines = [line for line in text.splitlines() if not line.startswith(" | ")]
    first = re.sub(r"^ERROR: <input>:(\d+):(\d+): ", r"\1:\2: ", lines[0] if lines else text)
    return re.sub(r" \(in container ''\)", "", first)[:500]


def _answers(rules: Sequence[Rule], tree: dict[str, Any] | None) -> Iterable[tuple[Rule, dict[str, Any]]]:
    """Yields what the process says of each rule. A rule that ends the process can't be computed."""
    if not rules:
        return
    _refuse_too_much(rules)
    request = {"rules": [rule.expression for rule in rules], "plan": tree, "now": time.time()}
    command = [sys.executable, "-I", str(_PROCESS)]
    try:
        done = subprocess.run(
            command,
            input=json.dumps(request).encode(),
            capture_output=True,
            timeout=WALL_S,
            env={},
            check=False,
        )
        lines, why = done.stdout.splitlines(), done.stderr
    except subprocess.TimeoutExpired as late:
        lines, why = (late.stdout or b"").splitlines(), b""
    for number, rule in enumerate(rules):
        if number < len(lines):
            yield rule, json.loads(lines[number])
        else:
            last = why.decode(errors="replace").strip().rpartition("\n")[2]
            broke = last and "MemoryError" not in last
            yield rule, {"problem": f"the process that judges it ended: {last}" if broke else _STOPPED}
            return


def _refuse_too_much(rules: Sequence[Rule]) -> None:
    if is_missing(Extra.POLICIES):
        what, hint = missing_extra(Extra.POLICIES, "a rule in CEL")
        raise Failure(error(what, hint, source=rules[0].source, code=CODE))
    if len(rules) > MOST_RULES:
        what = f"there are {len(rules)} rules, and at most {MOST_RULES} are judged"
        raise Failure(error(what, "join some with ||", source=rules[0].source, code=CODE))
    for rule in rules:
        if len(rule.expression) > LONGEST_RULE:
            what = f"the rule {rule.name} is longer than {LONGEST_RULE:,} characters"
            raise Failure(error(what, "make several rules of it", source=rule.source, code=CODE))

"""The process that judges rules in CEL: alone, within bounds of time and memory, without the planner.

The author of a topology writes its rules, so an expression must not hang or fill the machine that plans. CEL
reads nothing but its variables, and the library bounds nesting and iterations; the rest is bounded here.
Standard input is `{"rules": [expression, …], "plan": tree or null, "now": seconds}`. Standard output is one
object a rule: `{"problem": text, "each": bool, "broken": [index, …] or bool}`.
"""

import datetime
import json
import resource
import sys
from typing import Any

CPU_SECONDS = 10
MEMORY = 1 << 30


def judged(
    cel: Any, envs: tuple[Any, Any], expression: str, plan: Any, now: datetime.datetime
) -> dict[str, Any]:
    """Returns what a rule says of the plan; without a plan, only whether it can be compiled."""
    whole, each = envs
    is_each = False
    try:
        program = whole.compile(expression)
    except RuntimeError as wrong:
        problem = str(wrong)
        try:
            program, is_each = each.compile(expression), True
        except RuntimeError as of_each:
            # Where the name `resource` is the only difference, the second message tells the real mistake.
            return {"problem": str(of_each) if "'resource" in problem else problem}
    if program.return_type() not in (cel.Type.BOOL, cel.Type.DYN):
        return {"problem": f"it is of the type {program.return_type().name()}, and a rule is true or false"}
    if plan is None:
        return {"each": is_each}
    if not is_each:
        value = program.eval(data={"plan": plan, "now": now})
        return {"broken": _truth(cel, value)} if _is_truth(cel, value) else {"problem": _problem(value)}
    # A map is converted whole when it is read, so the changes are left out.
    rest = {key: part for key, part in plan.items() if key != "resource_changes"}
    broken = []
    for index, change in enumerate(plan["resource_changes"]):
        value = program.eval(data={"plan": rest, "resource": change, "now": now})
        if not _is_truth(cel, value):
            return {"problem": _problem(value), "at": index}
        if _truth(cel, value):
            broken.append(index)
    return {"each": True, "broken": broken}


def _is_truth(cel: Any, value: Any) -> bool:
    return bool(value.type() == cel.Type.BOOL)


def _truth(cel: Any, value: Any) -> bool:
    return bool(value.value())


def _problem(value: Any) -> str:
    text = str(value.value())
    return text if "ERROR" in value.type().name() else f"it is {text[:100]}, and a rule is true or false"


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    from cel_expr_python import cel
    from cel_expr_python.ext import ext_optional, ext_strings

    request = json.load(sys.stdin)
    names = {"plan": cel.Type.DYN, "now": cel.Type.TIMESTAMP}
    more = [ext_strings.ExtStrings(), ext_optional.ExtOptional()]
    envs = (
        cel.NewEnv(variables=names, extensions=more),
        cel.NewEnv(variables={**names, "resource": cel.Type.DYN}, extensions=more),
    )
    now = datetime.datetime.fromtimestamp(request["now"], datetime.UTC)
    for expression in request["rules"]:
        try:
            answer = judged(cel, envs, expression, request["plan"], now)
        except RuntimeError as wrong:  # the library's own bounds
            answer = {"problem": str(wrong)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

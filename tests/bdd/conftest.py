"""Steps that stories of a town share. A module's own step of the same words comes before these."""

from pytest_bdd import given, parsers, then, when

from tests.bdd.running import Town, eventually
from tests.processes import lives


@given("orders are copied from dc1 to dc2")
def _(town: Town) -> None:
    town.apply()


@when("dc1 is lost")
def _(town: Town) -> None:
    town.lab.kill("dc1")


@when("dc1 is started again")
def _(town: Town) -> None:
    town.lab.start("dc1")


@when("the engineer runs repl failover dc1")
def _(town: Town) -> None:
    town.run("failover", "dc1", "--path", str(town.topology.file), "--auto-approve")


@then(parsers.parse("the exit code is {code:d}"))
def _(town: Town, code: int) -> None:
    done = town.last()
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}"


@then(parsers.parse('the output says "{text}"'))
def _(town: Town, text: str) -> None:
    assert text in town.said(town.last().stdout), town.last()


@then(parsers.parse('the message says "{text}"'))
def _(town: Town, text: str) -> None:
    assert text in town.said(town.last().stderr), town.last()


@then("no job is running")
def _(town: Town) -> None:
    eventually(lambda: not any(map(lives, town.processes("dc2").values())), about="no job is running")

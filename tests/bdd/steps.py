"""Steps that the stories of a town share. A module's own step of the same words comes before them."""

import json
from functools import partial

from pytest_bdd import parsers, then

from tests.bdd.running import Town, eventually


@then("a plan shows no changes")
def _(town: Town) -> None:
    town.succeeds("plan", str(town.topology.file), "--detailed-exitcode")


@then(parsers.parse("{word} at dc2 holds what dc1 has, each once and in order"))
def _(town: Town, word: str) -> None:
    eventually(partial(town.same, word), about=word)


@then(parsers.parse("repl salvage lists {count:d} records of {word}"))
def _(town: Town, count: int, word: str) -> None:
    done = town.run("salvage", town.name("dc1-to-dc2"), "--path", str(town.topology.file), "--json")
    found = json.loads(done.stdout)["partitions"]
    assert sum(part["records"] for part in found if part["topic"] == town.name(word)) == count

"""The steps: load, losses, commands, consumer groups, changes of the topology, and then what must hold.

A demand that does not hold is a broken promise of the report.
"""

import shlex

import yaml

from planner.drill import promises
from planner.drill.scenario_run import ScenarioRun
from planner.drill.steps.language import step


@step("{count} records are written to {topics} at {cluster}")
def _(drill: ScenarioRun, count: int, topics: tuple[str, ...], cluster: str) -> None:
    """So many records are written to each topic and acknowledged. `every topic` is each that flows copy."""
    drill.write(cluster, drill.topics_at(cluster, topics), count)


@step("producers write {rate} records/s to {topics} at {cluster}")
def _(drill: ScenarioRun, rate: float, topics: tuple[str, ...], cluster: str) -> None:
    """Producers write at this rate to each topic, until they are stopped or the cluster is lost."""
    drill.start_load(cluster, drill.topics_at(cluster, topics), rate)


@step("the producers have written {count} records to each topic")
def _(drill: ScenarioRun, count: int) -> None:
    """Waits for so many acknowledged records."""
    drill.await_load(count)


@step("the producers stop")
def _(drill: ScenarioRun) -> None:
    """Ends the load at every cluster."""
    drill.stop_load()


@step("the group {group} has read {count} records of {topics} at {cluster}")
def _(drill: ScenarioRun, group: str, count: int, topics: tuple[str, ...], cluster: str) -> None:
    """A consumer of the group reads so many records, commits its offsets and ends."""
    drill.read(group, cluster, drill.topics_at(cluster, topics), count)


@step("the group {group} resumes at {cluster}")
def _(drill: ScenarioRun, group: str, cluster: str) -> None:
    """A consumer of the group reads on, to the present end. The time since the loss is the RTO."""
    drill.resume(group, cluster)


@step("a consumer of the group {group} reads {count} records at {cluster} and stays connected")
def _(drill: ScenarioRun, group: str, count: int, cluster: str) -> None:
    """A consumer of the group reads so many further records, commits its offsets and does not leave."""
    drill.connect(group, cluster, count)


@step("the consumers of the group {group} leave")
def _(drill: ScenarioRun, group: str) -> None:
    """Ends the consumers of the group that stayed connected."""
    drill.disconnect(group)


@step("the flows have copied everything")
def _(drill: ScenarioRun) -> None:
    """Waits until no active flow has lag, also into files, and the synced groups are translated."""
    drill.await_copied()


@step("{cluster} is lost")
def _(drill: ScenarioRun, cluster: str) -> None:
    """Every broker of the cluster is killed at once, as by a power cut. Its producers end."""
    drill.lose(cluster)


@step("half of {cluster} is lost")
def _(drill: ScenarioRun, cluster: str) -> None:
    """One of two brokers is killed. The cluster is started with two."""
    drill.lose(cluster, [1])


@step("{count} of {all} brokers of {cluster} are lost")
def _(drill: ScenarioRun, count: int, cluster: str) -> None:
    """So many brokers are killed. The cluster is started with the larger number."""
    drill.lose(cluster, range(1, count + 1))


@step("{cluster} is cut off")
def _(drill: ScenarioRun, cluster: str) -> None:
    """Jobs and commands reach the cluster no more. Its own producers and consumers do."""
    drill.cut_off(cluster)


@step("the link to {cluster} is {ms} ms slower")
def _(drill: ScenarioRun, cluster: str, ms: int) -> None:
    """Jobs and commands get the cluster's answers later."""
    drill.replica.link(cluster).slow(ms / 1000)


@step("the link to {cluster} is restored")
def _(drill: ScenarioRun, cluster: str) -> None:
    """Ends a cut and a delay."""
    drill.bring_back(cluster)


@step("{cluster} is started again")
def _(drill: ScenarioRun, cluster: str) -> None:
    """The brokers that were lost start on their data."""
    drill.bring_back(cluster)


@step("the machine of the jobs is lost")
def _(drill: ScenarioRun) -> None:
    """Every job is killed with its supervisor, and its folder is gone. Commands run on another machine."""
    drill.replica.lose_machine()


@step("retention deletes every record of {topics} at {cluster}")
def _(drill: ScenarioRun, topics: tuple[str, ...], cluster: str) -> None:
    """The topics' logs start at their present ends, as where retention is shorter than an outage."""
    drill.replica.delete_records(cluster, drill.topics_at(cluster, topics))


@step("an operator creates {topic} at {cluster} with {count} partitions")
def _(drill: ScenarioRun, topic: str, cluster: str, count: int) -> None:
    """The topic is created by hand, outside the topology."""
    drill.operator.create(cluster, topic, count)


@step("an operator deletes {topic} at {cluster}")
def _(drill: ScenarioRun, topic: str, cluster: str) -> None:
    """The topic is deleted by hand."""
    drill.operator.delete(cluster, topic)


@step("{topic} at {cluster} grows to {count} partitions")
def _(drill: ScenarioRun, topic: str, cluster: str, count: int) -> None:
    """Partitions are added by hand, until the topic has so many."""
    drill.operator.grow(cluster, topic, count)


@step("an operator sets {key} of {topic} at {cluster} to {value}")
def _(drill: ScenarioRun, key: str, topic: str, cluster: str, value: str) -> None:
    """One setting of the topic is changed by hand, to Kafka's own value: `86400000`, not `1d`."""
    drill.operator.set_config(cluster, topic, key, value)


@step("the flow {flow} is changed to {changes}")
def _(drill: ScenarioRun, flow: str, changes: str) -> None:
    """Keys of the flow are edited in the topology, for example `{rate_limit: 1MB/s}`. Nothing is applied."""
    drill.change("flows", flow, yaml.safe_load(changes))


@step("the topic {topic} at {cluster} is changed to {changes}")
def _(drill: ScenarioRun, topic: str, cluster: str, changes: str) -> None:
    """Keys of the declared topic are edited, or it is declared. Nothing is applied."""
    drill.change("topics", topic, yaml.safe_load(changes), cluster)


@step("the topology is again as before the last command")
def _(drill: ScenarioRun) -> None:
    """What the engineer's last command wrote into the topology is undone. Nothing is applied."""
    drill.undo_last()


@step("the engineer runs repl {command}")
def _(drill: ScenarioRun, command: str) -> None:
    """Runs the command on the topology and approves. If it fails, the next step must expect that."""
    drill.engineer(shlex.split(command))


# What must hold


@step("the RPO is at most {count} records", demands=True)
def _(drill: ScenarioRun, count: int) -> None:
    """At the last failover, so many acknowledged records of the lost cluster were missing at most."""
    drill.demand(kept=promises.rpo(drill, count))


@step("the RPO is at most {seconds} s", demands=True)
def _(drill: ScenarioRun, seconds: float) -> None:
    """At the last failover, the oldest missing record was so old at most."""
    drill.demand(kept=promises.rpo_s(drill, seconds))


@step("the RTO is at most {seconds} s", demands=True)
def _(drill: ScenarioRun, seconds: float) -> None:
    """From the loss until a consumer of each group that resumed got a record."""
    drill.demand(kept=promises.rto(drill, seconds))


@step(
    "the group {group} resumes at {cluster} with {again} records read again and {skipped} skipped",
    demands=True,
)
def _(drill: ScenarioRun, group: str, cluster: str, again: int, skipped: int) -> None:
    """The group reads on to the present end, from exactly where it stopped."""
    found = drill.resume(group, cluster)
    drill.demand(kept=promises.resumed(drill, found, cluster, again, skipped))


@step("both sides hold the same records", demands=True)
def _(drill: ScenarioRun) -> None:
    """Source and destination of every flow hold the same records, each as often."""
    drill.demand(kept=promises.equal(drill))


@step("{topic} at {cluster} holds {count} records", demands=True)
def _(drill: ScenarioRun, topic: str, cluster: str, count: int) -> None:
    """The topic holds so many committed records."""
    found = len(drill.values(cluster, topic))
    kept = drill.promise(
        f"records of {topic} at {cluster}",
        f"{count:,}",
        f"{found:,}",
        kept=found == count,
        why="records are missing or doubled: look at repl verify",
    )
    drill.demand(kept=kept)


@step("{topic} at {cluster} holds the records of {other}, each once and in order", demands=True)
def _(drill: ScenarioRun, topic: str, cluster: str, other: str) -> None:
    """The topic and its copy or its source there hold the same records, in every partition in one order."""
    drill.demand(kept=promises.in_order(drill, topic, cluster, other))


@step("{topic} at {cluster} has {count} partitions", demands=True)
def _(drill: ScenarioRun, topic: str, cluster: str, count: int) -> None:
    """The topic has so many partitions, or comes to them within a minute."""
    found = drill.operator.partitions(cluster, topic, count)
    assert found == count, f"it has {found}"


@step("{topic} does not exist at {cluster}", demands=True)
def _(drill: ScenarioRun, topic: str, cluster: str) -> None:
    """The cluster has no such topic, or loses it within a minute."""
    found = drill.operator.partitions(cluster, topic, 0)
    assert not found, f"it has {found} partitions"


@step("{key} of {topic} at {cluster} is {value}", demands=True)
def _(drill: ScenarioRun, key: str, topic: str, cluster: str, value: str) -> None:
    """The setting of the topic has Kafka's value, or comes to it within a minute."""
    found = drill.operator.config(cluster, topic, key, value)
    assert found == value, f"it is {found}"


@step("nothing is orphaned", demands=True)
def _(drill: ScenarioRun) -> None:
    """No topic is at a cluster that the topology does not know, and no process is left where no flow runs."""
    drill.demand(kept=promises.no_orphans(drill))


@step("salvage lists {count} records of {flow}", demands=True)
def _(drill: ScenarioRun, count: int, flow: str) -> None:
    """`repl salvage` finds so many records at the source that never reached the destination."""
    drill.demand(kept=promises.salvage(drill, flow, count))


@step("the plan shows no changes", demands=True)
def _(drill: ScenarioRun) -> None:
    """`repl plan --detailed-exitcode` exits with 0."""
    drill.demand(kept=promises.no_changes(drill))


@step('the plan shows "{text}"', demands=True)
def _(drill: ScenarioRun, text: str) -> None:
    """`repl plan` prints this text."""
    drill.demand(kept=promises.output(drill, text, "plan"))


@step("repl status shows {flow} as {state}", demands=True)
def _(drill: ScenarioRun, flow: str, state: str) -> None:
    """The flow, or one of its partitions, comes to this state within four minutes."""
    drill.demand(kept=promises.state(drill, flow, state))


@step("no job is running", demands=True)
def _(drill: ScenarioRun) -> None:
    """No process of a job is left."""
    drill.demand(kept=promises.no_job(drill))


@step("the exit code is {code}", demands=True, looks=True)
def _(drill: ScenarioRun, code: int) -> None:
    """The last command ended with it."""
    done = drill.last()
    assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"


@step('the output says "{text}"', demands=True, looks=True)
def _(drill: ScenarioRun, text: str) -> None:
    """The last command printed this to stdout."""
    done = drill.last()
    assert text in done.stdout, f"stdout is {done.stdout!r}; stderr is {done.stderr!r}"


@step('the output ends with "{text}"', demands=True, looks=True)
def _(drill: ScenarioRun, text: str) -> None:
    """The last command printed this to stdout at its end."""
    done = drill.last()
    assert done.stdout.rstrip().endswith(text), f"stdout is {done.stdout!r}; stderr is {done.stderr!r}"


@step('the message says "{text}"', demands=True, looks=True)
def _(drill: ScenarioRun, text: str) -> None:
    """The last command printed this to stderr."""
    done = drill.last()
    assert text in done.stderr, f"stderr is {done.stderr!r}; stdout is {done.stdout!r}"

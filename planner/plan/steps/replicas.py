"""Which brokers hold which partition after a change of the replication factor."""

from collections import Counter
from collections.abc import Sequence

from planner.model.observed import ObservedBroker


def wanted_replicas(
    replicas: Sequence[tuple[int, ...]], replication: int, brokers: Sequence[ObservedBroker]
) -> tuple[tuple[int, ...], ...] | None:
    """None where there are fewer live brokers than replicas wanted.

    As little as can be is moved: replicas that stay keep their place, the preferred leader stays first.
    New ones go to the broker that holds fewest of this topic's, on a rack that has none yet if one is left.
    """
    if replication < 1 or replication > len(brokers):
        return None
    racks = {broker.id: broker.rack for broker in brokers}
    load = Counter({broker.id: 0 for broker in brokers})
    kept = [tuple(one for one in partition if one in racks)[:replication] for partition in replicas]
    for partition in kept:
        load.update(partition)
    wanted = []
    for partition in kept:
        chosen = list(partition)
        while len(chosen) < replication:
            used_racks = {racks[one] for one in chosen if racks[one] is not None}
            broker = min(
                (one for one in racks if one not in chosen),
                key=lambda one: (racks[one] in used_racks, load[one], one),
            )
            load[broker] += 1
            chosen.append(broker)
        wanted.append(tuple(chosen))
    return tuple(wanted)

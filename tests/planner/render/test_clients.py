"""Groups and producers as they are shown."""

from planner.render.reports.groups import LIMITS, clients_json, clients_screen
from runtime.contract.views.records_view import (
    ClientsView,
    CommittedOffsetView,
    ConsumerGroupView,
    GroupMemberView,
    ProducerView,
    TopicClients,
)

NOW = 1_800_000_000_000


def producer(
    producer_id: int, flow: str | None = None, name: str | None = None, ago_ms: int = 0
) -> ProducerView:
    return ProducerView(
        producer_id=producer_id,
        epoch=0,
        transactional_id=name,
        flow=flow,
        last_timestamp_ms=NOW - ago_ms,
        partitions=[0, 1, 2],
        open_since={1: 40} if name == "till" else {},
    )


def seen(*topics: TopicClients) -> ClientsView:
    return ClientsView(
        cluster="dc1", cluster_id="id-1", at_ms=NOW, over_ms=0, topics=list(topics), notes=["a note"]
    )


def orders(*producers: ProducerView) -> TopicClients:
    member = GroupMemberView(client_id="app-1", host="10.0.0.3", member_id="m", partitions=[0, 2])
    committed = CommittedOffsetView(partition=0, offset=60, end=100, lag=40, records_per_s=None)
    consumers = [
        ConsumerGroupView(
            group="billing",
            state="Stable",
            members=[member],
            lag=40,
            records_per_s=2.5,
            partitions=[committed],
        ),
        ConsumerGroupView(
            group="old", state="Empty", members=[], lag=None, records_per_s=None, partitions=[]
        ),
    ]
    return TopicClients(topic="orders", partitions=3, producers=list(producers), consumers=consumers)


def lines(found: ClientsView, width: int | None = 120) -> list[str]:
    return [line.plain.rstrip() for line in clients_screen(found, width)]


def test_who_reads_and_who_writes():
    flow = [producer(one, flow="back", name=f"repl.{one}", ago_ms=5_000) for one in (7, 8)]
    assert lines(seen(orders(producer(9, name="till"), producer(10, ago_ms=130_000), *flow))) == [
        "dc1: cluster id id-1",
        "",
        "TOPIC   GROUP    STATE   LAG   RATE  MEMBERS",
        "orders  billing  Stable   40  2.5/s  app-1@10.0.0.3 (0, 2)",
        "orders  old      Empty     –      –  none",
        "",
        "TOPIC   PRODUCER           LAST RECORD  PARTITIONS  TRANSACTION",
        "orders  flow back (2 ids)    5.0 s ago  0-2         none open",
        "orders  till (id 9)            0 s ago  0-2         open in 1",
        "orders  id 10                2 min ago  0-2         none open",
        "",
        "note: a note",
        LIMITS,
    ]


def test_nobody():
    nobody = TopicClients(topic="quiet", partitions=1, producers=[], consumers=[])
    assert [line for line in lines(seen(nobody)) if line.startswith("No ")] == [
        "No group has committed offsets of these topics, or members that read them.",
        "No producer with an id wrote to these topics lately.",
    ]


def test_many_producers_are_counted():
    shown = lines(seen(orders(*(producer(one) for one in range(14)))))
    assert sum("  id " in line for line in shown) == 10
    assert any("… and 4 more" in line for line in shown)


def test_narrow():
    assert max(len(line) for line in lines(seen(orders(producer(9))), 40) if line != LIMITS) <= 40


def test_json_has_text_for_keys():
    topic = clients_json(seen(orders(producer(9, name="till"))))["topics"][0]
    assert topic["producers"][0]["open_since"] == {"1": 40}

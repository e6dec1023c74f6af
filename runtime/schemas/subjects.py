"""Names of subjects: which belong to a topic, and how they are called at the destination. Pure."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from runtime.contract.spec.schemas import PARTS, SubjectNames


def belongs_to(subject: str, topic: str, names: SubjectNames) -> bool:
    """Returns whether producers of the topic name this subject, by their strategy.

    With `record_name` a subject tells no topic: a record's schema alone does.
    """
    match names:
        case "topic_name":
            return subject in {f"{topic}-{part}" for part in PARTS}
        case "topic_record_name":
            return subject.startswith(f"{topic}-")
        case "record_name":
            return False


def subjects_of_topic(ordered: Sequence[str], topic: str, names: SubjectNames) -> Iterator[str]:
    """Yields the subjects of a topic, among the sorted names of all subjects."""
    prefix = f"{topic}-"
    for at in range(bisect_left(ordered, prefix), len(ordered)):
        if not ordered[at].startswith(prefix):
            return
        if belongs_to(ordered[at], topic, names):
            yield ordered[at]


def at_destination(subject: str, topic: str, renamed: str, names: SubjectNames) -> str:
    """Returns the subject's name at the destination, where the topic is called `renamed`."""
    return renamed + subject[len(topic) :] if belongs_to(subject, topic, names) else subject


def preferred(places: Iterable[tuple[str, int]], topic: str, names: SubjectNames) -> tuple[str, int] | None:
    """Returns the subject and version under which a schema of the topic's records is registered.

    It is one of the topic's own subjects where there is one, else the first by name, but for
    `topic_record_name`, where all subjects name their topic; None without any.
    """
    ordered = sorted(places)
    of_topic = [place for place in ordered if belongs_to(place[0], topic, names)]
    return next(iter(of_topic if names == "topic_record_name" else of_topic or ordered), None)

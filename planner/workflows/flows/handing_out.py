"""The files with the new address of a wave that has moved: for people to review and commit.

A file that is there with other content stays, and no symbolic link leads out of the topology's folder.
"""

from pathlib import Path

from planner.config.handout import NewAddress, handed_out
from planner.graph.cutovers import WaveTopics
from planner.graph.routes import router_of
from planner.model.diagnostic import Failure, error, warning
from planner.workflows.interaction import ProgressHandler
from planner.workflows.new_files import new_file
from planner.workflows.observing import read_clusters
from planner.workflows.requests import CutoverRequest
from planner.workflows.topology import folder_of, load_and_lint


async def hand_out(wave: WaveTopics, request: CutoverRequest, progress: ProgressHandler) -> None:
    """Writes the files of a wave, and reports each."""
    if not wave.cutover.hand_out:
        return
    topology = load_and_lint(request).topology
    router = router_of(topology)
    destination = topology.clusters[topology.flows[wave.cutover.flows[0]].destination_cluster]
    brokers: list[int] = []
    if any(handed.format == "confluent_gateway" for handed in wave.cutover.hand_out):
        seen = await read_clusters({destination.name: destination}, request.timeout_s)
        live = seen.reachable(destination.name)
        brokers = [broker.id for broker in live.brokers] if live is not None else []
    address = NewAddress(
        wave.cutover.name,
        wave.wave.name,
        destination,
        {
            topic: router.destination_topic(flow, topic) or topic
            for flow, topics in wave.topics.items()
            for topic in topics
        },
        wave.wave.groups,
        brokers,
    )
    for handed in wave.cutover.hand_out:
        folder = folder_of(request.path.resolve())
        file = folder / handed.file.replace("{wave}", wave.wave.name)
        if leaves(file, folder):
            what = f"{file} is outside of the topology's folder, behind a symbolic link, and is not written"
            progress(warning(what, "name a file inside the folder under hand_out"))
            continue
        if not _written(file, handed_out(handed, address)):
            what = f"{file} is there with other content, and stays as it is"
            progress(warning(what, f"remove it and run repl cutover {request.cutover} again"))
        else:
            progress(f"wave {wave.wave.name}: its new address is in {file}")


def leaves(file: Path, folder: Path) -> bool:
    """Returns whether a symbolic link leads a file out of a folder."""
    return not file.resolve().is_relative_to(folder.resolve())


def _written(file: Path, content: str) -> bool:
    """Writes a new file; returns False where another content is there. Failure: it can't be written."""
    try:
        if file.exists() or file.is_symlink():
            return file.read_bytes() == content.encode()
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as wrong:
        raise Failure(error(f"{file}: {wrong.strerror}", "correct that and run the command again")) from None
    with new_file(file, private=False) as write:
        write(content)
    return True

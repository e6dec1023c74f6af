"""load: files → text → trees → one tree → expressions computed → read → checked → Topology."""

from collections.abc import Iterable, Sequence
from collections.abc import Mapping as Texts
from dataclasses import dataclass
from pathlib import Path

from planner.config.bounds import MOST_MISTAKES, refuse_more_flows, refuse_more_mistakes, refuse_more_pairs
from planner.config.files import MAX_BYTES, read_text, topology_files
from planner.config.language.build import topology_of
from planner.config.language.defaults import parts_of
from planner.config.language.fields import ParsedRecord, missing
from planner.config.language.reader import ShapeReader
from planner.config.merge import merged
from planner.config.validation import check
from planner.config.validation_more import check_for_anything, check_more
from planner.config.variables import Variables
from planner.config.yaml_tree.nodes import Mapping, Node, Scalar, kind_of
from planner.config.yaml_tree.parse import documents
from planner.model.diagnostic import Diagnostic, Failure, Severity, SourceLocation, error
from planner.model.keys import record_of
from planner.model.topology import API_VERSION, Topology

Edited = Texts[Path, str]
NOTHING_EDITED: Edited = {}


@dataclass(frozen=True, slots=True)
class LoadedTopology:
    """A topology without errors, with what should still be said about it."""

    topology: Topology
    warnings: tuple[Diagnostic, ...]
    files: tuple[Path, ...]


def load(path: Path, var_files: Sequence[Path] = ()) -> Topology:
    """The topology of a file or folder. Failure holds every error at once, in the order of the files."""
    return load_with_warnings(path, var_files).topology


def load_with_warnings(
    path: Path,
    var_files: Sequence[Path] = (),
    *,
    may_declare_nothing: bool = False,
    edited: Edited = NOTHING_EDITED,
) -> LoadedTopology:
    """`edited` stands in for what some files hold, so that an edit can be planned before it is written."""
    files = topology_files(path, var_files)
    loading = _Loading(may_declare_nothing, edited)
    roots = [root for file in files for root in loading.roots(file)]
    if not roots:
        loading.found_nothing_in(path)
    topology = loading.topology(roots, var_files)
    return LoadedTopology(topology, in_order(loading.diagnostics), files)


class _Loading:
    """Gathers what is wrong. `broken` once some of the topology could not be read at all."""

    def __init__(self, may_declare_nothing: bool, edited: Edited) -> None:
        self.may_declare_nothing = may_declare_nothing
        self.edited = edited
        self.diagnostics: list[Diagnostic] = []
        self.broken = False
        self.characters = 0

    def trees(self, file: Path) -> list[Node]:
        """The documents of one file that hold anything."""
        try:
            text = self.edited[file] if file in self.edited else read_text(file)
            self.characters += len(text)
            if self.characters > MAX_BYTES:
                what = f"{file}: with this file the topology is larger than {MAX_BYTES // 2**20} MiB"
                raise Failure(error(what, "name the topology's own folder"))
            nodes, found = documents(text, str(file))
        except Failure as failure:
            self.diagnostics += failure.diagnostics
            self.broken = True
            return []
        self.diagnostics += found
        return [node for node in nodes if not (isinstance(node, Scalar) and node.is_null)]

    def roots(self, file: Path) -> list[Mapping]:
        found = []
        for tree in self.trees(file):
            if not isinstance(tree, Mapping):
                what = f"{kind_of(tree)} where a topology begins"
                self._not_ours(
                    what, "begin it with apiVersion, name and clusters, each key at the left", tree
                )
            elif tree.pairs and self._speaks_our_language(tree):
                found.append(tree)
        return found

    def _speaks_our_language(self, tree: Mapping) -> bool:
        version = tree.get("apiVersion")
        if version is None or (isinstance(version, Scalar) and version.text == API_VERSION):
            return True
        said = version.text if isinstance(version, Scalar) else kind_of(version)
        ours, _, number = said.partition("/v")
        if ours == "repl" and number.isdigit():
            what = f'the language "{said}" is newer than this repl, which reads {API_VERSION}'
            self._not_ours(what, "install a newer repl", version)
        else:
            self._not_ours(
                f'apiVersion is "{said}": this is no topology', f"a topology has {API_VERSION}", version
            )
        return False

    def _not_ours(self, what: str, mend: str, node: Node) -> None:
        self.diagnostics.append(error(what, mend, source=node.source))
        self.broken = True

    def found_nothing_in(self, path: Path) -> None:
        """Nothing declared is a mistake, and never "delete everything"."""
        if not self.diagnostics:
            what = f"{path}: nothing is declared here" if path.is_dir() else f"{path}: the file is empty"
            self.diagnostics.append(error(what, "write a topology, or start one with `repl init`"))
        self._fail()

    def topology(self, roots: list[Mapping], var_files: Sequence[Path]) -> Topology:
        root, found = merged(record_of(Topology), roots)
        try:
            variables = self._variables(root, var_files)
            without_vars = tuple((key, value) for key, value in root.pairs if key.text != "vars")
            rendered = variables.rendered(Mapping(without_vars, root.file, root.line, root.column))
            assert isinstance(rendered, Mapping)
            refuse_more_flows(rendered)
            reader = ShapeReader()
            fields = reader.read(record_of(Topology), rendered, "topology")
        except Failure as too_much:
            raise Failure([*self.diagnostics[:MOST_MISTAKES], *too_much.diagnostics]) from None
        assert isinstance(fields, ParsedRecord)
        self.diagnostics += found + variables.diagnostics + variables.unused() + reader.diagnostics
        parts = parts_of(fields)
        if not self.broken:
            # A name may be declared in a file that could not be read: only then is it not looked for.
            self.diagnostics += missing(fields) + check(parts) + check_more(parts)
        self._fail()
        if not self.may_declare_nothing:
            self.diagnostics += check_for_anything(parts)
        self._fail()
        topology = topology_of(parts)
        refuse_more_pairs(topology)
        return topology

    def _variables(self, root: Mapping, var_files: Sequence[Path]) -> Variables:
        variables = Variables()
        if (declared := root.get("vars")) is not None:
            variables.declare(declared)
        for file in var_files:
            for given in self.trees(file):
                variables.give(given)
        return variables

    def _fail(self) -> None:
        refuse_more_mistakes([one for one in in_order(self.diagnostics) if one.severity is Severity.ERROR])
        if any(one.severity is Severity.ERROR for one in self.diagnostics):
            raise Failure(in_order(self.diagnostics))


def in_order(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """By file, line and column; what has no place comes first; nothing twice."""
    nowhere = SourceLocation("", 0, 0)
    return tuple(sorted(dict.fromkeys(diagnostics), key=lambda one: (one.source or nowhere, one.summary)))

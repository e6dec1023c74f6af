"""Loads a topology: files → text → trees → one tree → expressions computed → read → checked → Topology.

Several documents become one tree: maps are joined by name, lists are concatenated.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from planner.config.bounds import MOST_MISTAKES, refuse_more_flows, refuse_more_mistakes, refuse_more_pairs
from planner.config.files import MAX_BYTES, read_text, topology_files
from planner.config.language.build import built, topology_of, with_inherited
from planner.config.language.reader import ParsedRecord, ShapeReader, missing
from planner.config.validation import check, check_not_empty, check_rules
from planner.config.variables import Variables
from planner.config.yaml_tree import ListNode, MapNode, Node, ScalarNode, documents, kind_of
from planner.model.diagnostic import Diagnostic, Failure, Severity, SourceLocation, error
from planner.model.plan import MARK
from planner.model.topology import API_VERSION, OperatorPolicy, Rule, Topology
from runtime.contract.spec import shapes
from runtime.contract.spec.shapes import RecordShape, Shape, record_of


def merged(record: RecordShape, roots: Sequence[MapNode]) -> tuple[MapNode, list[Diagnostic]]:
    """Returns one mapping with the content of all. A name that stands twice is an error with both places."""
    diagnostics: list[Diagnostic] = []
    return _mapping(record, roots, diagnostics), diagnostics


def _mapping(record: RecordShape, roots: Sequence[MapNode], diagnostics: list[Diagnostic]) -> MapNode:
    if len(roots) == 1:
        return roots[0]
    entries_of: dict[str, list[tuple[ScalarNode, Node]]] = {}
    for root in roots:
        for key, value in root.pairs:
            entries_of.setdefault(key.text, []).append((key, value))
    pairs = []
    for name, entries in entries_of.items():
        declared = record.by_name.get(name)
        if declared is None:
            # Unknown keys are all shown, each at its place.
            pairs += entries
        else:
            pairs.append((entries[0][0], _value(declared.shape, entries, diagnostics)))
    return replace(roots[0], pairs=tuple(pairs))


def _value(shape: Shape, entries: list[tuple[ScalarNode, Node]], diagnostics: list[Diagnostic]) -> Node:
    key, first = entries[0]
    if len(entries) == 1:
        return first
    values = [value for _, value in entries]
    if isinstance(shape, shapes.ListShape) and all(isinstance(value, ListNode) for value in values):
        items = tuple(item for value in values if isinstance(value, ListNode) for item in value.items)
        return ListNode(items, first.source)
    maps = [value for value in values if isinstance(value, MapNode)]
    if len(maps) == len(values) and isinstance(shape, shapes.RecordShape):
        return _mapping(shape, maps, diagnostics)
    if len(maps) == len(values) and isinstance(shape, shapes.MapShape | shapes.SettingsShape):
        return _named(maps, diagnostics)
    for other, value in entries[1:]:
        same = isinstance(first, ScalarNode) and isinstance(value, ScalarNode) and first.text == value.text
        if not same:
            what = f'"{key.text}" stands in two places, first at {key.source}'
            diagnostics.append(error(what, "say it once", source=other.source))
    return first


def _named(maps: list[MapNode], diagnostics: list[Diagnostic]) -> MapNode:
    pairs: dict[str, tuple[ScalarNode, Node]] = {}
    for tree in maps:
        for key, value in tree.pairs:
            if key.text in pairs:
                what = f'"{key.text}" stands in two places, first at {pairs[key.text][0].source}'
                diagnostics.append(error(what, "keep one of the two", source=key.source))
            else:
                pairs[key.text] = (key, value)
    return replace(maps[0], pairs=tuple(pairs.values()))


Edited = Mapping[Path, str]
NOTHING_EDITED: Edited = {}


@dataclass(frozen=True, slots=True)
class LoadedTopology:
    """A topology without errors, with its warnings."""

    topology: Topology
    warnings: tuple[Diagnostic, ...]
    files: tuple[Path, ...]


def load(path: Path, var_files: Sequence[Path] = ()) -> Topology:
    """Returns the topology of a file or folder. A Failure holds all errors, in the order of the files."""
    return load_with_warnings(path, var_files).topology


def load_with_warnings(
    path: Path,
    var_files: Sequence[Path] = (),
    *,
    may_declare_nothing: bool = False,
    edited: Edited = NOTHING_EDITED,
) -> LoadedTopology:
    """Returns the topology with its warnings.

    `edited` maps a file to the text that is read instead of its content, so that an edit can be planned
    before it is written.
    """
    files = topology_files(path, var_files)
    loading = _Loading(may_declare_nothing, edited)
    roots = [root for file in files for root in loading.roots(file)]
    if not roots:
        loading.fail_empty(path)
    topology = loading.topology(roots, var_files)
    return LoadedTopology(topology, in_order(loading.diagnostics), files)


class _Loading:
    """Collects all errors of one load. `broken` is set once a part of the topology could not be read."""

    def __init__(self, may_declare_nothing: bool, edited: Edited) -> None:
        self.may_declare_nothing = may_declare_nothing
        self.edited = edited
        self.diagnostics: list[Diagnostic] = []
        self.broken = False
        self.characters = 0

    def trees(self, file: Path) -> list[Node]:
        """Returns the documents of one file that are not empty."""
        try:
            text = self.edited[file] if file in self.edited else read_text(file)
            self.characters += len(text)
            if self.characters > MAX_BYTES:
                what = f"{file}: with this file the topology is larger than {MAX_BYTES // 2**20} MiB"
                raise Failure(error(what, "name the topology's own folder"))
            nodes, mistakes = documents(text, str(file))
        except Failure as failure:
            self.diagnostics += failure.diagnostics
            self.broken = True
            return []
        self.diagnostics += mistakes
        return [node for node in nodes if not (isinstance(node, ScalarNode) and node.is_null)]

    def roots(self, file: Path) -> list[MapNode]:
        roots = []
        for tree in self.trees(file):
            if not isinstance(tree, MapNode):
                what = f"{kind_of(tree)} where a topology begins"
                self._refuse(what, "begin it with apiVersion, name and clusters, each key at the left", tree)
            elif tree.get(MARK) is not None:
                what = "a saved plan where a topology begins"
                self._refuse(what, "repl show shows it, and repl apply carries it out", tree)
            elif tree.pairs and self._has_known_version(tree):
                roots.append(tree)
        return roots

    def _has_known_version(self, tree: MapNode) -> bool:
        version = tree.get("apiVersion")
        if version is None or (isinstance(version, ScalarNode) and version.text == API_VERSION):
            return True
        said = version.text if isinstance(version, ScalarNode) else kind_of(version)
        ours, _, number = said.partition("/v")
        if ours == "repl" and number.isdigit():
            what = f'the language "{said}" is newer than this repl, which reads {API_VERSION}'
            self._refuse(what, "install a newer repl", version)
        else:
            self._refuse(
                f'apiVersion is "{said}": this is no topology', f"a topology has {API_VERSION}", version
            )
        return False

    def _refuse(self, what: str, hint: str, node: Node) -> None:
        self.diagnostics.append(error(what, hint, source=node.source))
        self.broken = True

    def fail_empty(self, path: Path) -> None:
        """Fails for a topology without any document: it is an error, and never means "delete everything"."""
        if not self.diagnostics:
            what = f"{path}: nothing is declared here" if path.is_dir() else f"{path}: the file is empty"
            self.diagnostics.append(error(what, "write a topology, or start one with `repl init`"))
        self._raise_errors()

    def topology(self, roots: list[MapNode], var_files: Sequence[Path]) -> Topology:
        root, mistakes = merged(record_of(Topology), roots)
        try:
            variables = self._variables(root, var_files)
            without_vars = tuple((key, value) for key, value in root.pairs if key.text != "vars")
            rendered = variables.rendered(replace(root, pairs=without_vars))
            assert isinstance(rendered, MapNode)
            refuse_more_flows(rendered)
            reader = ShapeReader()
            fields = reader.read(record_of(Topology), rendered, "topology")
        except Failure as too_much:
            raise Failure([*self.diagnostics[:MOST_MISTAKES], *too_much.diagnostics]) from None
        assert isinstance(fields, ParsedRecord)
        self.diagnostics += mistakes + variables.diagnostics + variables.unused() + reader.diagnostics
        parsed = with_inherited(fields)
        if not self.broken:
            # A missing name may be declared in a file that could not be read: then it is not reported.
            self.diagnostics += missing(fields) + check(parsed)
        self._raise_errors()
        if not self.may_declare_nothing:
            self.diagnostics += check_not_empty(parsed)
        self._raise_errors()
        topology = topology_of(parsed)
        refuse_more_pairs(topology)
        return topology

    def _variables(self, root: MapNode, var_files: Sequence[Path]) -> Variables:
        variables = Variables()
        if (declared := root.get("vars")) is not None:
            variables.declare(declared)
        for file in var_files:
            for given in self.trees(file):
                variables.give(given)
        return variables

    def _raise_errors(self) -> None:
        refuse_more_mistakes(
            [problem for problem in in_order(self.diagnostics) if problem.severity is Severity.ERROR]
        )
        if any(problem.severity is Severity.ERROR for problem in self.diagnostics):
            raise Failure(in_order(self.diagnostics))


def load_rules(file: Path) -> tuple[Rule, ...]:
    """Returns the rules of an operator's policy file, which stand outside of every topology.

    Failure holds every mistake in it.
    """
    nodes, diagnostics = documents(read_text(file), str(file))
    if len(nodes) != 1:
        raise Failure(error(f"{file}: a policy file is one document", "begin it with rules:"))
    reader = ShapeReader()
    fields = reader.read(record_of(OperatorPolicy), nodes[0], "policy file")
    diagnostics += reader.diagnostics
    if isinstance(fields, ParsedRecord):
        diagnostics += check_rules(fields.get("rules") or ())
    if any(problem.severity is Severity.ERROR for problem in diagnostics):
        raise Failure(diagnostics)
    policy: OperatorPolicy = built(fields)
    return policy.rules


def in_order(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Returns diagnostics by file, line and column, each once; those without a place come first."""
    nowhere = SourceLocation("", 0, 0)
    return tuple(
        sorted(dict.fromkeys(diagnostics), key=lambda problem: (problem.source or nowhere, problem.summary))
    )

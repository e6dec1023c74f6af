"""Converts an MSK Replicator: what `aws kafka describe-replicator` answers, or a template of CloudFormation.

Both name clusters by their ARNs, and ARNs hold no address.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec.structs import replace

from planner.config.importing.declared import DeclaredResources
from planner.config.importing.document import ConvertedTopology, Fields, NoCounterpart, trees
from planner.config.yaml_tree import ListNode, MapNode, Node
from planner.model.diagnostic import Failure, error
from planner.model.topology import Flow, Selection
from runtime.contract.client.settings import MSK_IAM
from runtime.contract.client.stores import Setting
from runtime.contract.spec.flow import ConfigsSpec, Earliest, GroupsSpec, Latest, OriginCommitsSpec
from runtime.contract.spec.rename import SAME_NAME, Template

WHAT = "the answer of aws kafka describe-replicator, or a CloudFormation template"
_ARN = re.compile(r"arn:[\w-]+:kafka:(?P<region>[\w-]+):\d*:cluster/(?P<name>[^/]+)/.*")
_SHORT = re.compile(r"(?<=[\s:\[,-])!(?:Ref|GetAtt|Sub|ImportValue|Select|Join|If)\b")
_SERVICE = NoCounterpart(
    "Replicator(Arn|State|ResourceArn|Description)|CreationTime|CurrentVersion|IsReplicatorReference|StateInfo"
    "|ServiceExecutionRoleArn|Tags|VpcConfig|ResponseMetadata|Description",
    "there is no service of AWS: a job runs on Spark, jobs: says how",
)
_ROWS = (
    _SERVICE,
    NoCounterpart(
        "TargetCompressionType",
        "batches keep their compression: declare the topic with compression.type for another one",
        loss=True,
        without_effect="NONE",
    ),
    NoCounterpart(
        "DetectAndCopyNewConsumerGroups", "new groups that match are always taken", without_effect="true"
    ),
)


def convert(files: Sequence[tuple[str, str]], name: str) -> ConvertedTopology:
    """Converts replicators. Failure: there is none in the files."""
    declared = DeclaredResources()
    for file, text in files:
        lines = {text.count("\n", 0, short.start()) + 1 for short in _SHORT.finditer(text)}
        for node in trees(_SHORT.sub("", text), file, WHAT):
            replicators = list(_replicators(_capital(node), file, declared))
            if not replicators:
                raise Failure(error(f"{file} holds no MSK Replicator", f"name {WHAT}"))
            for replicator in replicators:
                for copy in replicator.each("ReplicationInfoList"):
                    for part in ("TopicReplication", "ConsumerGroupReplication"):
                        if _has_function(copy.values.get(part), lines):
                            raise copy.failure(
                                f"{file}: a function of CloudFormation says what {part} is",
                                "import the answer of aws kafka describe-replicator, or write the value out",
                            )
                _convert(replicator, declared)
    return declared.topology(name, "MSK Replicator")


def _capital(node: Node) -> Node:
    """Returns the tree with CloudFormation's names: the API begins them with small letters in some tools."""
    match node:
        case MapNode(pairs=pairs):
            named = (
                (replace(key, text=key.text[:1].upper() + key.text[1:]), _capital(value))
                for key, value in pairs
            )
            return replace(node, pairs=tuple(named))
        case ListNode(items=items):
            return replace(node, items=tuple(map(_capital, items)))
        case _:
            return node


def _has_function(node: Node | None, lines: Collection[int]) -> bool:
    """Returns whether a function gives a value in this tree; `lines` have one in YAML's short form."""
    match node:
        case MapNode(pairs=pairs):
            return any(
                key.text == "Ref" or key.text.startswith("Fn::") or _has_function(value, lines)
                for key, value in pairs
            )
        case ListNode(items=items):
            return node.source.line in lines or any(_has_function(item, lines) for item in items)
        case _:
            return node is not None and node.source.line in lines


def _replicators(node: Node, file: str, declared: DeclaredResources) -> Iterator[Fields]:
    root = Fields.of(node, file, declared.notes)
    if "ReplicationInfoList" in root.values:
        yield root
    resources = root.below("Resources")
    for name in resources.values:
        resource = resources.below(name)
        if resource.text("Type") == "AWS::MSK::Replicator":
            yield resource.below("Properties")


def _convert(replicator: Fields, declared: DeclaredResources) -> None:
    names: dict[str, str] = {}  # of the clusters, by ARN and by alias
    for cluster in replicator.each("KafkaClusters"):
        msk = cluster.below("AmazonMskCluster")
        arn = _reference(msk, "MskClusterArn")
        alias = cluster.text("KafkaClusterAlias")
        name = _declare(arn, alias, cluster, declared)
        for key in filter(None, (arn, alias)):
            if names.setdefault(key, name) != name:
                what = f"two clusters of a replicator have the alias {key[:100]}"
                raise Failure(error(what, "give each an alias of its own"))
        msk.explain(_ROWS)
        parsed_arn = _ARN.fullmatch(arn)
        client: dict[str, Setting] = {"security.protocol": "SASL_SSL", "sasl.mechanism": MSK_IAM}
        if parsed_arn is not None:
            client["sasl.aws.region"] = parsed_arn["region"]
        declared.cluster(name, cluster, "", client)
        cluster.explain(_ROWS)
    base = replicator.text("ReplicatorName") or "replicator"
    copies = replicator.each("ReplicationInfoList")
    for number, copy in enumerate(copies, 1):
        ends = [_end(copy, side, names, declared) for side in ("Source", "Target")]
        flow = re.sub(r"[^A-Za-z0-9._-]", "-", base).lstrip("._-")[:90] or "replicator"
        flow = declared.flow_name(flow if len(copies) == 1 else f"{flow}-{number}", replicator)
        declared.flows[flow] = _flow(copy, flow, *ends)
        copy.explain(_ROWS)
    replicator.explain(_ROWS)


def _end(copy: Fields, side: str, names: Mapping[str, str], declared: DeclaredResources) -> str:
    """Returns the cluster at one end, which an alias or an ARN names."""
    alias, arn = copy.text(f"{side}KafkaClusterAlias"), _reference(copy, f"{side}KafkaClusterArn")
    name = names.get(alias or "") or names.get(arn)
    return name or declared.cluster(_declare(arn, alias or side.lower(), copy, declared), copy)


def _declare(arn: str, alias: str | None, fields: Fields, declared: DeclaredResources) -> str:
    """Returns the name of a cluster: its alias, or the name in its ARN, with the region if taken."""
    parsed_arn = _ARN.fullmatch(arn)
    label = alias or (parsed_arn["name"] if parsed_arn is not None else arn.removesuffix(".Arn"))
    regional = f"{label}-{parsed_arn['region']}" if parsed_arn is not None else label
    identity = (arn,) if parsed_arn is not None else (fields.file, arn or label or fields.path)
    return declared.name(identity, fields, label, regional)


def _reference(fields: Fields, name: str) -> str:
    """Returns a text, or what a function of CloudFormation refers to: `Primary.Arn`."""
    node = fields.node(name)
    if isinstance(node, MapNode) and len(node.pairs) == 1:
        return ".".join(fields.below(name).texts(node.pairs[0][0].text))
    return fields.text(name) or ""


def _flow(copy: Fields, name: str, source: str, destination: str) -> Flow:
    topics, groups = copy.below("TopicReplication"), copy.below("ConsumerGroupReplication")
    kind = topics.below("TopicNameConfiguration").text("Type") or "PREFIXED_WITH_SOURCE_CLUSTER_ALIAS"
    alias = copy.text("SourceKafkaClusterAlias") or source
    origin = alias if alias != source and re.fullmatch(r"[A-Za-z0-9._-]+", alias) else "{source}"
    rename = SAME_NAME if kind == "IDENTICAL" else Template(f"{origin}.{{topic}}")
    start = topics.below("StartingPosition").text("Type") or "LATEST"
    flow = Flow(
        name,
        source,
        destination,
        Selection(topics.texts("TopicsToReplicate") or (".*",), topics.texts("TopicsToExclude")),
        rename=rename,
        start=Earliest() if start == "EARLIEST" else Latest(),
        configs=ConfigsSpec("set" if topics.flag(True, "CopyTopicConfigurations") else "off"),
        groups=GroupsSpec(
            groups.texts("ConsumerGroupsToReplicate") or (".*",),
            groups.texts("ConsumerGroupsToExclude"),
            sync=groups.flag(True, "SynchroniseConsumerGroupOffsets"),
        ),
        acls_sync=topics.flag(True, "CopyAccessControlListsForTopics"),
        follow_every_ms=5_000 if topics.flag(True, "DetectAndCopyNewTopics") else None,
        origin_commits=OriginCommitsSpec(),
    )
    for part in (topics, groups):
        part.explain(_ROWS)
    return flow

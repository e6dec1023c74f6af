"""The fields of sparkoperator.k8s.io/v1beta2's SparkApplication that we use, written down from its reference
(kubeflow/spark-operator, docs/api-docs.md), as JSON Schema. Whatever is not here is a mistake of ours.
"""

from typing import Any


def closed(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


TEXT = {"type": "string", "minLength": 1}
TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
NAME = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63}
INT32 = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}
SECONDS = {"type": "integer", "minimum": 1}
MEMORY = {"type": "string", "pattern": r"^\d+[kmgtKMGT]?[bB]?$"}

META = closed(("name",), name=NAME, namespace=NAME, labels=TEXTS, annotations=TEXTS)

POD: dict[str, Any] = {
    "cores": {"type": "integer", "minimum": 1},
    "coreLimit": TEXT,
    "memory": MEMORY,
    "memoryOverhead": MEMORY,
    "image": TEXT,
    "env": {"type": "array", "items": closed(("name",), name=TEXT, value={"type": "string"})},
    "envSecretKeyRefs": {
        "type": "object",
        "additionalProperties": closed(("name", "key"), name=NAME, key=TEXT),
    },
    "secrets": {
        "type": "array",
        "items": closed(
            ("name", "path", "secretType"),
            name=NAME,
            path=TEXT,
            secretType={"enum": ["Generic", "GCPServiceAccount", "HadoopDelegationToken"]},
        ),
    },
    "labels": TEXTS,
    "annotations": TEXTS,
    "serviceAccount": NAME,
    "javaOptions": TEXT,
    "terminationGracePeriodSeconds": SECONDS,
}

SPARK_APPLICATION = closed(
    ("apiVersion", "kind", "metadata", "spec"),
    apiVersion={"const": "sparkoperator.k8s.io/v1beta2"},
    kind={"const": "SparkApplication"},
    metadata=META,
    spec=closed(
        ("type", "mode", "sparkVersion", "mainApplicationFile", "restartPolicy", "driver", "executor"),
        type={"enum": ["Java", "Python", "Scala", "R"]},
        pythonVersion={"enum": ["2", "3"]},
        mode={"enum": ["cluster", "client", "in-cluster-client"]},
        sparkVersion=TEXT,
        image=TEXT,
        imagePullPolicy={"enum": ["Always", "IfNotPresent", "Never"]},
        mainApplicationFile={"type": "string", "pattern": "^local:///"},
        arguments={"type": "array", "items": {"type": "string"}},
        sparkConf=TEXTS,
        restartPolicy=closed(
            ("type",),
            type={"enum": ["Never", "Always", "OnFailure"]},
            onFailureRetries=INT32,
            onFailureRetryInterval=SECONDS,
            onSubmissionFailureRetries=INT32,
            onSubmissionFailureRetryInterval=SECONDS,
        ),
        driver=closed(**POD),
        executor=closed(**POD, instances={"type": "integer", "minimum": 1}),
    ),
)

SECRET = closed(
    ("apiVersion", "kind", "metadata", "stringData"),
    apiVersion={"const": "v1"},
    kind={"const": "Secret"},
    metadata=META,
    type={"const": "Opaque"},
    stringData=TEXTS,
)

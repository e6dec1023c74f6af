"""Writes the rights of jobs into the Helm chart: python -m tests.docs.chart_rights"""

from pathlib import Path

import yaml

from runtime.contract.spec.launch import LaunchSpec
from runtime.launch.manifest import rights

FILE = Path(__file__).parents[2] / "plans" / "kubernetes" / "templates" / "rights.yaml"
_OPTIONS = {"namespace": "{{ .Release.Namespace }}", "service_account": "{{ .Values.rights.serviceAccount }}"}
_HEAD = """\
{{- /* By `make docs`, from runtime/launch/manifest.py. */}}
{{- if .Values.rights.enabled }}"""


def template() -> str:
    """Returns what `repl jobs manifest` prints, as a template. Running jobs need it, so Helm keeps it."""
    resources = rights(LaunchSpec(launcher="kubernetes", options=_OPTIONS))
    for resource in resources:
        resource["metadata"]["annotations"] = {"helm.sh/resource-policy": "keep"}
    text = yaml.safe_dump_all(resources, explicit_start=True, sort_keys=False, width=200)
    return "\n".join((_HEAD, text + "{{- end }}", ""))


if __name__ == "__main__":
    FILE.write_text(template())

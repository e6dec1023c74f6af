{{- define "repl.name" -}}
{{ .Release.Name | trunc 42 | trimSuffix "-" }}
{{- end }}

{{/* A job's objects have the instance repl-JOB, and are deleted by it: these never have it. */}}
{{- define "repl.selector" -}}
app.kubernetes.io/name: repl
app.kubernetes.io/instance: {{ printf "helm-%s" .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "repl.labels" -}}
{{ include "repl.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "repl.metadata" -}}
name: {{ include "repl.name" .root }}-{{ .component }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "repl.labels" . | nindent 2 }}
{{- end }}

{{- define "repl.podMetadata" -}}
labels:
  {{- merge (fromYaml (include "repl.labels" .)) .root.Values.pod.labels | toYaml | nindent 2 }}
annotations:
  {{- /* New files are a new pod; a ConfigMap that this chart does not own reaches the pod by itself. */}}
  repl/topology: {{ toJson .root.Values.topology | sha256sum }}
  {{- with .root.Values.pod.annotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "repl.path" -}}
{{- if .Values.topology.git.repository -}}
{{ printf "/topology/%s" .Values.topology.git.path | clean }}
{{- else -}}
/topology
{{- end }}
{{- end }}

{{- define "repl.checkTopology" -}}
{{- $topology := .Values.topology }}
{{- $sources := list }}
{{- range list $topology.files $topology.configMap $topology.git.repository }}
{{- if . }}{{ $sources = append $sources . }}{{ end }}
{{- end }}
{{- if ne (len $sources) 1 }}
{{- if not $sources }}
{{- fail "no topology: set one of topology.files, topology.configMap and topology.git.repository" }}
{{- end }}
{{- fail "more than one topology: set one of topology.files, topology.configMap and topology.git.repository" }}
{{- end }}
{{- end }}

{{/* What the pods of both commands have in common. `mounts` are like those of the values, `container` is more YAML. */}}
{{- define "repl.podSpec" -}}
{{- $values := .root.Values }}
{{- $mounts := concat $values.mounts .mounts }}
{{- with $values.secret }}
{{- $mounts = append $mounts (dict "secret" . "path" "/etc/repl/secrets") }}
{{- end }}
{{- include "repl.checkTopology" .root }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- with $values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with $values.pod.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.pod.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.topology.git }}
{{- if .repository }}
initContainers:
  - name: git
    image: {{ required "topology.git.image: name an image with git" .image | quote }}
    command:
      - git
      - clone
      - --depth=1
      - {{ printf "--branch=%s" .ref | quote }}
      - --
      - {{ .repository | quote }}
      - /topology
    env:
      - {name: HOME, value: /tmp}
      - {name: GIT_TERMINAL_PROMPT, value: "0"}
      {{- if .secret }}
      - {name: GIT_CONFIG_COUNT, value: "1"}
      - {name: GIT_CONFIG_KEY_0, value: credential.helper}
      - name: GIT_CONFIG_VALUE_0
        value: '!f() { for key in username password; do echo "$key=$(cat /etc/repl/git/$key)"; done; }; f'
      - name: GIT_SSH_COMMAND
        value: ssh -i /etc/repl/git/ssh-privatekey -o IdentitiesOnly=yes -o UserKnownHostsFile=/etc/repl/git/known_hosts -o StrictHostKeyChecking=yes
      {{- end }}
    securityContext:
      runAsUser: 10001
      {{- include "repl.containerSecurity" . | nindent 6 }}
    resources:
      requests: {cpu: 10m, memory: 32Mi}
      limits: {memory: 256Mi}
    volumeMounts:
      - {name: topology, mountPath: /topology}
      - {name: tmp, mountPath: /tmp}
      {{- if .secret }}
      - {name: git, mountPath: /etc/repl/git, readOnly: true}
      # ssh needs a user with a name, which the image may lack.
      - {name: git-user, mountPath: /etc/passwd, subPath: passwd, readOnly: true}
      {{- end }}
{{- end }}
{{- end }}
containers:
  - name: {{ .component }}
    image: {{ required "image: name the image of the target `jobs` of the Dockerfile" $values.image | quote }}
    args:
      - {{ .component }}
      - {{ include "repl.path" .root | quote }}
      - {{ printf "--timeout=%s" $values.timeout | quote }}
      {{- range $values.topology.variableFiles }}
      - {{ printf "--var-file=%s" . | quote }}
      {{- end }}
      {{- range .args }}
      - {{ . | quote }}
      {{- end }}
    {{- with $values.env }}
    env:
      {{- range $name, $value := . }}
      - name: {{ $name }}
        value: {{ $value | quote }}
      {{- end }}
    {{- end }}
    {{- with $values.secret }}
    envFrom:
      - secretRef: {name: {{ . }}}
    {{- end }}
    securityContext:
      {{- include "repl.containerSecurity" . | nindent 6 }}
    resources:
      {{- toYaml .resources | nindent 6 }}
    volumeMounts:
      - {name: topology, mountPath: /topology, readOnly: true}
      - {name: home, mountPath: /var/lib/repl}
      - {name: tmp, mountPath: /tmp}
      {{- range $number, $mount := $mounts }}
      - {name: mount-{{ $number }}, mountPath: {{ $mount.path | quote }}, readOnly: true}
      {{- end }}
    {{- with .container }}
    {{- . | nindent 4 }}
    {{- end }}
volumes:
  - name: topology
    {{- with $values.topology }}
    {{- if .git.repository }}
    emptyDir: {}
    {{- else }}
    configMap: {name: {{ .configMap | default (printf "%s-topology" (include "repl.name" $.root)) }}}
    {{- end }}
    {{- end }}
  - {name: home, emptyDir: {}}
  - {name: tmp, emptyDir: {}}
  {{- if and $values.topology.git.repository $values.topology.git.secret }}
  - name: git
    secret: {secretName: {{ $values.topology.git.secret }}, defaultMode: 0440}
  - name: git-user
    configMap: {name: {{ include "repl.name" .root }}-git}
  {{- end }}
  {{- range $number, $mount := $mounts }}
  - name: mount-{{ $number }}
    {{- if $mount.secret }}
    secret:
      secretName: {{ $mount.secret }}
      defaultMode: 0440
      {{- with $mount.items }}
      items: {{ toJson . }}
      {{- end }}
    {{- else }}
    configMap: {name: {{ $mount.configMap }}}
    {{- end }}
  {{- end }}
{{- end }}

{{- define "repl.containerSecurity" -}}
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
readOnlyRootFilesystem: true
{{- end }}

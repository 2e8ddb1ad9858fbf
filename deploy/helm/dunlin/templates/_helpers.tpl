{{- define "dunlin.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- /* Short enough that the names of pods, with -headless or -etcd behind, are names of hosts. */ -}}
{{- define "dunlin.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "dunlin.name" . -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "dunlin.selector" -}}
app.kubernetes.io/name: {{ include "dunlin.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "dunlin.labels" -}}
{{ include "dunlin.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* metadata of an object: dict "context" $ "name" NAME ["component" C] ["labels" L] ["annotations" A] ["namespace" N] */ -}}
{{- define "dunlin.metadata" -}}
name: {{ .name }}
namespace: {{ default .context.Release.Namespace .namespace }}
labels:
  {{- include "dunlin.labels" .context | nindent 2 }}
  {{- with .component }}
  app.kubernetes.io/component: {{ . }}
  {{- end }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (deepCopy (default dict .annotations)) .context.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* An image: list $ IMAGE */ -}}
{{- define "dunlin.image" -}}
{{- $context := index . 0 -}}
{{- $image := index . 1 -}}
{{- $registry := default $image.registry $context.Values.global.imageRegistry -}}
{{- with $registry }}{{ . }}/{{ end }}{{ $image.repository }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ default $context.Chart.AppVersion $image.tag }}{{ end -}}
{{- end -}}

{{- define "dunlin.pullSecrets" -}}
{{- with concat .Values.global.imagePullSecrets .Values.image.pullSecrets | uniq }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "dunlin.isCluster" -}}
{{- if ne .Values.architecture "standalone" }}yes{{ end -}}
{{- end -}}

{{- define "dunlin.pods" -}}
{{- if eq .Values.architecture "standalone" -}}1
{{- else if eq .Values.architecture "replication" -}}{{ add .Values.replica.replicaCount 1 }}
{{- else -}}{{ .Values.cluster.nodes }}
{{- end -}}
{{- end -}}

{{- /* Replicas of each shard. */ -}}
{{- define "dunlin.replicas" -}}
{{- ternary .Values.replica.replicaCount .Values.cluster.replicas (eq .Values.architecture "replication") -}}
{{- end -}}

{{- define "dunlin.masterSet" -}}
{{- default (include "dunlin.fullname" .) .Values.sentinel.masterSet -}}
{{- end -}}

{{- define "dunlin.headless" -}}
{{- printf "%s-headless" (include "dunlin.fullname" .) -}}
{{- end -}}

{{- define "dunlin.domain" -}}
{{- printf "%s.%s.svc.%s" (include "dunlin.headless" .) .Release.Namespace .Values.clusterDomain -}}
{{- end -}}

{{- define "dunlin.serviceAccount" -}}
{{- default (ternary (include "dunlin.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name -}}
{{- end -}}

{{- define "dunlin.authSecret" -}}
{{- default (include "dunlin.fullname" .) .Values.auth.existingSecret -}}
{{- end -}}

{{- define "dunlin.tlsSecret" -}}
{{- default (printf "%s-tls" (include "dunlin.fullname" .)) .Values.tls.existingSecret -}}
{{- end -}}

{{- define "dunlin.configmap" -}}
{{- default (include "dunlin.fullname" .) .Values.existingConfigmap -}}
{{- end -}}

{{- define "dunlin.join" -}}
{{- $endpoints := .Values.externalEtcd.endpoints -}}
{{- if .Values.etcd.enabled -}}
{{- $endpoints = list (printf "%s-etcd.%s.svc.%s:2379" (include "dunlin.fullname" .) .Release.Namespace .Values.clusterDomain) -}}
{{- end -}}
{{- $scheme := ternary "etcds" "etcd" (and (not .Values.etcd.enabled) .Values.externalEtcd.tls.enabled) -}}
{{- printf "%s://%s/%s" $scheme (join "," $endpoints) (include "dunlin.masterSet" .) -}}
{{- end -}}

{{- /* maxmemory in bytes: the value, or 75% of the container's limit; empty without either. */ -}}
{{- define "dunlin.maxmemory" -}}
{{- $limit := dig "limits" "memory" "" .Values.resources | toString -}}
{{- if ne (toString .Values.maxmemory) "" -}}
{{- .Values.maxmemory -}}
{{- else if regexMatch "^[0-9]+(\\.[0-9]+)?(Ki|Mi|Gi|Ti|k|M|G|T)?$" $limit -}}
{{- $units := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- $number := regexFind "^[0-9.]+" $limit -}}
{{- mulf $number (index $units (trimPrefix $number $limit)) 0.75 | int64 -}}
{{- end -}}
{{- end -}}

{{- /* Flags by which dunlin's clients speak TLS to any node of the release. */ -}}
{{- define "dunlin.tlsFlags" -}}
{{- if .Values.tls.enabled }}
- --cacert
- /etc/dunlin/tls/{{ .Values.tls.certCAFilename }}
- --cert
- /etc/dunlin/tls/{{ .Values.tls.certFilename }}
- --key
- /etc/dunlin/tls/{{ .Values.tls.certKeyFilename }}
- --sni
- {{ include "dunlin.fullname" . }}-0.{{ include "dunlin.domain" . }}
{{- end }}
{{- end -}}

{{- /* The user as which nodes and hooks log in, and its password. */ -}}
{{- define "dunlin.loginEnv" -}}
{{- if .Values.auth.enabled }}
- name: DUNLIN_PASSWORD
  valueFrom:
    secretKeyRef: { name: {{ include "dunlin.authSecret" . }}, key: {{ .Values.auth.existingSecretPasswordKey }} }
{{- end }}
{{- if and .Values.auth.acl.existingSecret .Values.auth.acl.linkUser }}
- name: DUNLIN_USER
  value: {{ .Values.auth.acl.linkUser }}
{{- end }}
{{- end -}}

{{- define "dunlin.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- if .Values.containerSecurityContext.enabled }}
{{- with omit .Values.containerSecurityContext "enabled" }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "dunlin.podSecurity" -}}
runAsNonRoot: true
seccompProfile: { type: RuntimeDefault }
{{- if .Values.podSecurityContext.enabled }}
{{- with omit .Values.podSecurityContext "enabled" }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "dunlin.volumeClaim" -}}
accessModes: {{ toJson .persistence.accessModes }}
{{- with default .context.Values.global.defaultStorageClass .persistence.storageClass }}
storageClassName: {{ . }}
{{- end }}
resources:
  requests: { storage: {{ .persistence.size }} }
{{- end -}}

{{- /* KubeRay adds up to ten characters to the name of a RayService, and allows 50 */}}
{{- define "convoy.name" -}}
{{- .Values.fullnameOverride | default .Release.Name | trunc (ternary 40 53 .Values.ray.enabled) | trimSuffix "-" -}}
{{- end }}

{{- define "convoy.selector" -}}
app.kubernetes.io/name: {{ .Values.nameOverride | default "convoy" }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "convoy.labels" -}}
{{ include "convoy.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* the images of a release: 0.6.0, 0.6.0-gpu, 0.6.0-ray */}}
{{- define "convoy.image" -}}
{{- $kind := "" }}
{{- if .Values.ray.enabled }}
{{- $kind = "-ray" }}
{{- else if hasKey (.Values.resources.limits | default dict) "nvidia.com/gpu" }}
{{- $kind = "-gpu" }}
{{- end }}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default (print .Chart.AppVersion $kind)) }}
{{- end }}

{{- define "convoy.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- .Values.serviceAccount.name | default (include "convoy.name" .) }}
{{- else }}
{{- .Values.serviceAccount.name | default "default" }}
{{- end }}
{{- end }}

{{- /* number of the HTTP port; Ray Serve always listens on 8000 */}}
{{- define "convoy.httpPort" -}}
{{- ternary 8000 (.Values.settings.port | default 8000 | int) .Values.ray.enabled }}
{{- end }}

{{- define "convoy.scheme" -}}
{{- ternary "https" "http" (and (not .Values.ray.enabled) (not (empty .Values.settings.ssl_certfile))) }}
{{- end }}

{{- define "convoy.portName" -}}
{{- ternary "serve" "http" .Values.ray.enabled }}
{{- end }}

{{- /* the Service of the HTTP port; in the Ray mode KubeRay makes it */}}
{{- define "convoy.serviceName" -}}
{{- include "convoy.name" . }}{{ if .Values.ray.enabled }}-serve-svc{{ end }}
{{- end }}

{{- define "convoy.servicePort" -}}
{{- ternary 8000 (int .Values.service.port) .Values.ray.enabled }}
{{- end }}

{{- /* names of claims; empty: an emptyDir or no volume */}}
{{- define "convoy.stateClaim" -}}
{{- if .Values.state.existingClaim }}{{ .Values.state.existingClaim }}
{{- else if .Values.state.persistence.enabled }}{{ include "convoy.name" . }}-state{{ end }}
{{- end }}

{{- define "convoy.fetches" -}}
{{- if or .Values.models.fetch .Values.models.languages }}true{{ end }}
{{- end }}

{{- define "convoy.fetchedClaim" -}}
{{- if .Values.models.fetchedClaim }}{{ .Values.models.fetchedClaim }}
{{- else if and .Values.models.persistence.enabled (include "convoy.fetches" .) }}{{ include "convoy.name" . }}-fetched{{ end }}
{{- end }}

{{- /* without a shared folder, requests of a client must reach the pod with its files and glossaries */}}
{{- define "convoy.affinity" -}}
{{- if .Values.service.sessionAffinity }}{{ .Values.service.sessionAffinity }}
{{- else if include "convoy.stateClaim" . }}None
{{- else }}ClientIP{{ end }}
{{- end }}

{{- define "convoy.environment" -}}
{{- $settings := deepCopy .Values.settings }}
{{- /* a Service called `convoy` sets CONVOY_PORT=tcp://... where service links are on */}}
{{- $_ := set $settings "port" (include "convoy.httpPort" . | int) }}
{{- if not (hasKey $settings "host") }}{{ $_ := set $settings "host" "0.0.0.0" }}{{ end }}
{{- if include "convoy.stateClaim" . }}{{ $_ := set $settings "store_folder" "/state/files" }}{{ end }}
{{- if include "convoy.fetches" . }}{{ $_ := set $settings "fetch_out" "/fetched" }}{{ end }}
{{- with .Values.models.fetch }}{{ $_ := set $settings "fetch" (join "," .) }}{{ end }}
{{- with .Values.models.languages }}{{ $_ := set $settings "languages" (join "," .) }}{{ end }}
{{- with .Values.models.mirror }}{{ $_ := set $settings "fetch_mirror" . }}{{ end }}
{{- if .Values.ray.enabled }}
{{- range $name := list "ray_min_replicas" "ray_max_replicas" }}
{{- if not (hasKey $settings $name) }}{{ $_ := set $settings $name (int $.Values.ray.workers) }}{{ end }}
{{- end }}
{{- with get (.Values.resources.limits | default dict) "nvidia.com/gpu" }}{{ $_ := set $settings "ray_gpus" . }}{{ end }}
{{- end }}
{{- range $name, $value := $settings }}
- name: CONVOY_{{ $name | upper }}
  {{- /* numbers come as floats, and 10485760 would be written 1.048576e+07 */}}
  {{- if and (kindIs "float64" $value) (eq $value (floor $value)) }}
  value: {{ $value | int64 | quote }}
  {{- else }}
  value: {{ $value | toString | quote }}
  {{- end }}
{{- end }}
- {name: XDG_CACHE_HOME, value: /cache} # compiled kernels of a GPU
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* TCP ports of an address, as JSON: scheme://host:port,host:port/path, or the scheme's port */}}
{{- define "convoy.addressPorts" -}}
{{- $hosts := regexReplaceAll "^[A-Za-z0-9+.-]+://([^@/]*@)?" . "" | splitList "/" | first }}
{{- $ports := list }}
{{- range regexFindAll ":[0-9]+" $hosts -1 }}{{ $ports = append $ports (trimPrefix ":" . | int) }}{{ end }}
{{- if and (not $ports) (contains "://" .) }}
{{- $usual := dict "https" 443 "http" 80 "redis" 6379 "rediss" 6379 "redis+cluster" 6379 "redis+sentinel" 26379 }}
{{- with get $usual (splitList "://" . | first) }}{{ $ports = append $ports (int .) }}{{ end }}
{{- end }}
{{- toJson $ports }}
{{- end }}

{{- /* JSON list of the ports of the addresses that the values name: of models, traces and Redis */}}
{{- define "convoy.egressPorts" -}}
{{- $addresses := list }}
{{- if include "convoy.fetches" . }}{{ $addresses = append $addresses (.Values.models.mirror | default "https://") }}{{ end }}
{{- range $name := list "traces" "limit_storage" "fetch_mirror" "fetch_firefox" "fetch_argos" }}
{{- with get $.Values.settings $name }}{{ $addresses = append $addresses . }}{{ end }}
{{- end }}
{{- range .Values.extraEnv }}
{{- if hasPrefix "OTEL_EXPORTER_OTLP_" .name }}{{ with .value }}{{ $addresses = append $addresses . }}{{ end }}{{ end }}
{{- end }}
{{- $ports := list }}
{{- range $addresses }}{{ $ports = concat $ports (include "convoy.addressPorts" . | fromJsonArray) }}{{ end }}
{{- /* an index of models may name files of other hosts, which use HTTPS */}}
{{- if and (include "convoy.fetches" .) (not .Values.models.mirror) }}{{ $ports = append $ports 443 }}{{ end }}
{{- $whole := list }}
{{- range $ports }}{{ $whole = append $whole (int .) }}{{ end }}
{{- $whole | uniq | toJson }}
{{- end }}

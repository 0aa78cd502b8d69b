{{- define "convoy.name" -}}
{{- .Release.Name | trunc 53 | trimSuffix "-" -}}
{{- end }}

{{- define "convoy.labels" -}}
app.kubernetes.io/name: convoy
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "convoy.environment" -}}
{{- range $name, $value := .Values.settings }}
- name: CONVOY_{{ $name | upper }}
  {{- /* numbers come as floats, and 10485760 would be written 1.048576e+07 */}}
  {{- if and (kindIs "float64" $value) (eq $value (floor $value)) }}
  value: {{ $value | int64 | quote }}
  {{- else }}
  value: {{ $value | toString | quote }}
  {{- end }}
{{- end }}
{{- if .Values.models.fetch }}
- name: CONVOY_MODELS
  value: /fetched
- name: CONVOY_FETCH
  value: {{ join "," .Values.models.fetch | quote }}
- name: CONVOY_FETCH_MIRROR
  value: {{ required "models.fetch needs models.mirror" .Values.models.mirror | quote }}
{{- end }}
{{- if .Values.state.existingClaim }}
- name: CONVOY_STORE_FOLDER
  value: /state/files
{{- end }}
{{- end }}

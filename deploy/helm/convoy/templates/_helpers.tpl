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
{{- if or .Values.models.fetch .Values.models.languages }}
- name: CONVOY_FETCH_OUT
  value: /fetched
{{- with .Values.models.fetch }}
- name: CONVOY_FETCH
  value: {{ join "," . | quote }}
{{- end }}
{{- with .Values.models.languages }}
- name: CONVOY_LANGUAGES
  value: {{ join "," . | quote }}
{{- end }}
{{- with .Values.models.mirror }}
- name: CONVOY_FETCH_MIRROR
  value: {{ . | quote }}
{{- end }}
{{- end }}
{{- if .Values.state.existingClaim }}
- name: CONVOY_STORE_FOLDER
  value: /state/files
{{- end }}
{{- end }}

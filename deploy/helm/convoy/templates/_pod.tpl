{{- /*
The one pod of all modes. Takes a dict: root, and role, which is "server", "head" or "worker" (of Ray).
*/}}
{{- define "convoy.pod" -}}
{{- $role := .role }}
{{- with .root -}}
metadata:
  labels:
    {{- include "convoy.labels" . | nindent 4 }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    {{- if ne $role "worker" }}
    prometheus.io/scrape: "true"
    prometheus.io/port: {{ include "convoy.httpPort" . | quote }}
    prometheus.io/path: /metrics
    {{- end }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "convoy.serviceAccount" . }}
  automountServiceAccountToken: {{ .Values.serviceAccount.automount }}
  # service links of a Service called `convoy` are variables CONVOY_..., which are settings of the server
  enableServiceLinks: false
  # longer than the preStop wait and the drain timeout together
  terminationGracePeriodSeconds: {{ add (int .Values.settings.drain_timeout) 20 }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    seccompProfile: {type: RuntimeDefault}
  {{- with .Values.image.pullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.runtimeClassName }}
  runtimeClassName: {{ . }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "convoy.selector" . | nindent 10 }}
  {{- with .Values.initContainers }}
  initContainers:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: convoy
      image: {{ include "convoy.image" . | quote }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      ports:
        - {name: {{ include "convoy.portName" . }}, containerPort: {{ include "convoy.httpPort" . }}}
        {{- if and (eq $role "server") .Values.settings.grpc_port }}
        - {name: grpc, containerPort: {{ int .Values.settings.grpc_port }}}
        {{- end }}
        {{- if eq $role "head" }}
        - {name: gcs-server, containerPort: 6379}
        - {name: dashboard, containerPort: 8265}
        - {name: client, containerPort: 10001}
        {{- end }}
      env:
        {{- include "convoy.environment" . | trim | nindent 8 }}
        {{- if ne $role "server" }}
        - {name: HOME, value: /tmp}
        {{- end }}
      {{- if or .Values.existingSecret .Values.extraEnvFrom }}
      envFrom:
        {{- with .Values.existingSecret }}
        - secretRef: {name: {{ . | quote }}}
        {{- end }}
        {{- with .Values.extraEnvFrom }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- end }}
      resources:
        {{- toYaml .Values.resources | nindent 8 }}
      {{- include (printf "convoy.probes.%s" (ternary "server" "ray" (eq $role "server"))) (dict "root" . "role" $role) | nindent 6 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      volumeMounts:
        - {name: tmp, mountPath: /tmp}
        - {name: cache, mountPath: /cache}
        {{- if ne $role "server" }}
        - {name: shm, mountPath: /dev/shm}
        {{- end }}
        {{- if .Values.models.existingClaim }}
        - {name: models, mountPath: /models, readOnly: true}
        {{- end }}
        {{- if include "convoy.fetches" . }}
        - {name: fetched, mountPath: /fetched}
        {{- end }}
        {{- if include "convoy.stateClaim" . }}
        - {name: state, mountPath: /state}
        {{- end }}
        {{- with .Values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - name: tmp
      emptyDir: {sizeLimit: 2Gi}
    - name: cache
      {{- if .Values.cache.existingClaim }}
      persistentVolumeClaim: {claimName: {{ .Values.cache.existingClaim | quote }}}
      {{- else }}
      emptyDir: {sizeLimit: {{ .Values.cache.size }}}
      {{- end }}
    {{- if ne $role "server" }}
    - name: shm
      emptyDir: {medium: Memory, sizeLimit: {{ .Values.ray.sharedMemory }}}
    {{- end }}
    {{- if .Values.models.existingClaim }}
    - name: models
      persistentVolumeClaim: {claimName: {{ .Values.models.existingClaim | quote }}, readOnly: true}
    {{- end }}
    {{- if include "convoy.fetches" . }}
    - name: fetched
      {{- if include "convoy.fetchedClaim" . }}
      persistentVolumeClaim: {claimName: {{ include "convoy.fetchedClaim" . | quote }}}
      {{- else }}
      emptyDir: {sizeLimit: {{ .Values.models.size }}}
      {{- end }}
    {{- end }}
    {{- if include "convoy.stateClaim" . }}
    - name: state
      persistentVolumeClaim: {claimName: {{ include "convoy.stateClaim" . | quote }}}
    {{- end }}
    {{- with .Values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
{{- end }}

{{- define "convoy.probes.server" -}}
startupProbe:
  httpGet: {path: /health/ready, port: http, scheme: {{ include "convoy.scheme" .root | upper }}}
  periodSeconds: 2
  failureThreshold: {{ ternary 900 60 (not (empty (include "convoy.fetches" .root))) }}
readinessProbe:
  httpGet: {path: /health/ready, port: http, scheme: {{ include "convoy.scheme" .root | upper }}}
  periodSeconds: 5
  failureThreshold: 2
livenessProbe:
  httpGet: {path: /health, port: http, scheme: {{ include "convoy.scheme" .root | upper }}}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
lifecycle:
  preStop:
    # the Service removes the pod before the server refuses new requests
    exec: {command: [python, -c, "import time; time.sleep(5)"]}
{{- end }}

{{- /* KubeRay's own probes call wget, which the image does not have */}}
{{- define "convoy.probes.ray" -}}
readinessProbe:
  {{- if eq .role "worker" }}
  httpGet: {path: /-/healthz, port: serve} # the proxy of Ray Serve: a worker without it gets no requests
  {{- else }}
  httpGet: {path: /api/local_raylet_healthz, port: 52365}
  {{- end }}
  periodSeconds: 5
  timeoutSeconds: 2
  failureThreshold: 10
livenessProbe:
  httpGet: {path: /api/local_raylet_healthz, port: 52365}
  initialDelaySeconds: 30
  periodSeconds: 5
  timeoutSeconds: 2
  failureThreshold: 120
{{- end }}

{{/* Settings of a role: defaults, then its kind's, then its own. Takes (list $ role). */}}
{{- define "skysail.role" -}}
{{- $top := index . 0 -}}{{- $role := index . 1 -}}
{{- $found := deepCopy $top.Values.defaults -}}
{{- range $key := list $role.kind $role.name -}}
{{- with index $top.Values.byRole $key -}}{{- $found = mergeOverwrite $found (deepCopy .) -}}{{- end -}}
{{- end -}}
{{- toYaml $found -}}
{{- end }}

{{/* Name of what belongs to a role. Takes (list $ role). */}}
{{- define "skysail.name" -}}
{{- printf "%s-%s" (index . 0).Release.Name (index . 1) | trunc 63 | trimSuffix "-" -}}
{{- end }}

{{- define "skysail.selector" -}}
app.kubernetes.io/name: skysail
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ (index . 1) }}
{{- end }}

{{- define "skysail.labels" -}}
{{ include "skysail.selector" . }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
helm.sh/chart: {{ printf "%s-%s" (index . 0).Chart.Name (index . 0).Chart.Version }}
{{- end }}

{{/* Takes (list $ image): what the image of a role has of its own, the rest is everybody's. */}}
{{- define "skysail.image" -}}
{{- $top := index . 0 -}}{{- $its := index . 1 | default dict -}}
{{ $its.repository | default $top.Values.image.repository }}:{{ $its.tag | default $top.Values.image.tag | default $top.Chart.AppVersion }}
{{- end }}

{{/* Refuses values that would do nothing. */}}
{{- define "skysail.checked" -}}
{{- $known := list "joiner" "worker" "host" -}}
{{- range .Values.deployment.roles -}}{{- $known = concat $known (list .name .kind) -}}{{- end -}}
{{- range $name, $_ := .Values.byRole -}}
{{- if not (has $name $known) -}}
{{- $known | uniq | sortAlpha | join ", " | printf "byRole.%s: there is no such role; there are: %s" $name | fail -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* As whom a role logs in, and the Secret with the password. Each takes (list $ user). */}}
{{- define "skysail.login" -}}{{ (index . 0).Values.kafka.login.user | default (index . 1) }}{{- end }}
{{- define "skysail.login-secret" -}}{{ (index . 0).Values.kafka.login.secret | default (index . 1) }}{{- end }}

{{/* The Secret with the password of Redis; empty: a role with users of Redis for others, or none, needs none. Takes
(list $ role). */}}
{{- define "skysail.redis-secret" -}}
{{- $redis := (index . 0).Values.redis -}}
{{- if $redis.users }}{{ get $redis.users (index . 1) }}{{ else }}{{ $redis.secret }}{{ end -}}
{{- end }}

{{/* The address of Redis, with the role's own user if it has one. Takes (list $ role). */}}
{{- define "skysail.redis-url" -}}
{{- $top := index . 0 -}}{{- $role := index . 1 -}}
{{- if hasKey $top.Values.redis.users $role -}}
{{ $top.Values.redis.url | replace "://" (printf "://%s.%s@" $top.Values.deployment.prefix $role) }}
{{- else -}}
{{ $top.Values.redis.url }}
{{- end -}}
{{- end }}

{{- define "skysail.settings" -}}
{{ required "deployment is empty: write it with `skysail k8s values > deployment.yaml` and add -f deployment.yaml" .Values.deployment.settings }}
{{- end }}

{{/* How many pods a role has at least. Takes (list $ role settings). */}}
{{- define "skysail.least" -}}
{{- $role := index . 1 -}}
{{ ternary 1 ((index . 2).replicas | default $role.replicas) $role.alone }}
{{- end }}

{{/* How many pods a role may have at most. Takes (list $ role settings). */}}
{{- define "skysail.most" -}}
{{- $role := index . 1 -}}{{- $scale := (index . 2).scale -}}
{{- if eq $role.kind "gateway" -}}{{ $scale.most | default 4 }}
{{- else if $scale.most -}}{{ min (int $scale.most) (int $role.most) }}
{{- else -}}{{ $role.most }}{{- end -}}
{{- end }}

{{/* Whether KEDA sets the number of pods. Takes (list $ role settings); empty = no. */}}
{{- define "skysail.scaled" -}}
{{- $top := index . 0 -}}{{- $role := index . 1 -}}{{- $its := index . 2 -}}
{{- if and $top.Values.keda.enabled $its.scale.enabled (not $role.alone) (or $role.topic (eq $role.kind "gateway")) -}}
{{- if gt (int (include "skysail.most" .)) (int (include "skysail.least" .)) -}}yes{{- end -}}
{{- end -}}
{{- end }}

{{- define "skysail.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
capabilities: {drop: [ALL]}
{{- end }}

{{/* What a container of a role or of the setup is told. Takes (list $ user role). */}}
{{- define "skysail.environment" -}}
{{- $top := index . 0 -}}{{- $user := index . 1 -}}{{- $role := index . 2 -}}
- {name: SKYSAIL_KAFKA__BOOTSTRAP, value: {{ $top.Values.kafka.bootstrap | quote }}}
{{- if $top.Values.kafka.secure }}
- {name: SKYSAIL_KAFKA__PROPERTIES__SECURITY_PROTOCOL, value: SASL_SSL}
- {name: SKYSAIL_KAFKA__PROPERTIES__SASL_MECHANISM, value: {{ $top.Values.kafka.mechanism }}}
- {name: SKYSAIL_KAFKA__PROPERTIES__SASL_PLAIN_USERNAME, value: {{ include "skysail.login" . | quote }}}
- {name: SKYSAIL_KAFKA__PROPERTIES__SASL_PLAIN_PASSWORD_FILE, value: /run/secrets/kafka/password}
{{- if $top.Values.kafka.authority.secret }}
- {name: SKYSAIL_KAFKA__PROPERTIES__SSL_CAFILE, value: /run/secrets/kafka/authority.pem}
{{- end }}
{{- end }}
- {name: SKYSAIL_REDIS__URL, value: {{ include "skysail.redis-url" (list $top $role) | quote }}}
{{- if include "skysail.redis-secret" (list $top $role) }}
- {name: SKYSAIL_REDIS__PASSWORD_FILE, value: /run/secrets/redis/password}
{{- end }}
{{- end }}

{{/* Takes (list $ role). */}}
{{- define "skysail.mounts" -}}
{{- $top := index . 0 -}}
- {name: home, mountPath: /home/skysail/.skysail}
- {name: temporary, mountPath: /tmp}
- {name: settings, mountPath: /home/skysail/skysail.yaml, subPath: skysail.yaml, readOnly: true}
{{- if $top.Values.models.volume }}
- {name: models, mountPath: /home/skysail/models, readOnly: true}
{{- end }}
{{- if $top.Values.kafka.secure }}
- {name: kafka, mountPath: /run/secrets/kafka, readOnly: true}
{{- end }}
{{- if include "skysail.redis-secret" . }}
- {name: redis, mountPath: /run/secrets/redis, readOnly: true}
{{- end }}
{{- end }}

{{/* Takes (list $ user role). */}}
{{- define "skysail.volumes" -}}
{{- $top := index . 0 -}}{{- $user := index . 1 -}}{{- $role := index . 2 -}}
- name: settings
  configMap: {name: {{ include "skysail.name" (list $top "settings") }}}
- name: home
  emptyDir: {}
- name: temporary
  emptyDir: {}
{{- with $top.Values.models.volume }}
- name: models
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if $top.Values.kafka.secure }}
- name: kafka
  projected:
    defaultMode: 0440
    sources:
      - secret:
          name: {{ include "skysail.login-secret" . }}
          items: [{key: {{ $top.Values.kafka.passwordKey }}, path: password}]
      {{- with $top.Values.kafka.authority }}
      {{- if .secret }}
      - secret:
          name: {{ .secret }}
          items: [{key: {{ .key }}, path: authority.pem}]
      {{- end }}
      {{- end }}
{{- end }}
{{- with include "skysail.redis-secret" (list $top $role) }}
- name: redis
  secret:
    secretName: {{ . }}
    defaultMode: 0440
    items: [{key: {{ $top.Values.redis.key }}, path: password}]
{{- end }}
{{- end }}

{{/* What every pod has. */}}
{{- define "skysail.pod" -}}
serviceAccountName: {{ include "skysail.name" (list . "roles") }}
automountServiceAccountToken: false
enableServiceLinks: false  # its variables would be taken for settings
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* The pod of the Job that publishes. */}}
{{- define "skysail.setup" -}}
{{- $user := .Values.deployment.operator -}}
metadata:
  labels: {{- include "skysail.labels" (list . "setup") | nindent 4 }}
  annotations: {skysail/settings: {{ include "skysail.settings" . | sha256sum }}}
spec:
  {{- include "skysail.pod" . | nindent 2 }}
  restartPolicy: OnFailure
  containers:
    - name: setup
      image: {{ include "skysail.image" (list . dict) }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args: [app, apply]
      env: {{- include "skysail.environment" (list . $user "operator") | nindent 8 }}
      resources: {{- toYaml .Values.defaults.resources | nindent 8 }}
      securityContext: {{- include "skysail.security" . | nindent 8 }}
      volumeMounts: {{- include "skysail.mounts" (list . "operator") | nindent 8 }}
  volumes: {{- include "skysail.volumes" (list . $user "operator") | nindent 4 }}
{{- end }}

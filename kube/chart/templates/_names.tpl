{{- define "weir.name" -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}-weir
{{- end }}
{{- define "weir.labels" -}}
app.kubernetes.io/name: weir
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

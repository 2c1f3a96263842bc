{{- define "weir.name" -}}
{{ $name := .Release.Name | trunc 50 | trimSuffix "-" -}}
{{ if contains "weir" $name }}{{ $name }}{{ else }}{{ $name }}-weir{{ end }}
{{- end }}
{{- define "weir.labels" -}}
app.kubernetes.io/name: weir
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

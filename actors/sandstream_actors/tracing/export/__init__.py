"""Export spans to a backend with OpenTelemetry's exporters."""

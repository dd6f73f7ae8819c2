"""Spans on their way to a backend, by OpenTelemetry's exporters."""

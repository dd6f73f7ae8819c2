"""Metrics, recorded with OpenTelemetry's instruments."""

"""What is counted and measured, by OpenTelemetry's instruments."""

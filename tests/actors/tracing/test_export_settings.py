"""Only the standard variables say what is exported; wrong ones are told at once."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from sandstream_actors.tracing.export.exporter import span_exporters
from sandstream_actors.tracing.export.sampling import Sampler
from sandstream_actors.tracing.export.settings import ExportSettings, TelemetryError
from sandstream_actors.tracing.metrics.instruments import Metrics

ROOT = Path(__file__).resolve().parents[3]
READ_BY_OPENTELEMETRY = {
    *("OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_METRIC_EXPORT_TIMEOUT"),
    "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE",
    *(
        f"OTEL_EXPORTER_OTLP_{signal}{what}"
        for signal in ("", "TRACES_", "METRICS_")
        for what in ("HEADERS", "INSECURE")
    ),
}
ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}


def test_nothing_is_exported_unless_something_asks_for_it() -> None:
    assert ExportSettings.from_env({}) == ExportSettings()
    assert ExportSettings().traces == ExportSettings().metrics == []
    assert span_exporters(ExportSettings()) == []


@pytest.mark.parametrize(
    ("environ", "traces", "metrics"),
    [
        (ENDPOINT, ["otlp"], ["otlp"]),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x/v1/traces"}, ["otlp"], []),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://x/v1/metrics"}, [], ["otlp"]),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, ["otlp"], []),
        ({"OTEL_TRACES_EXPORTER": " Console , otlp,"}, ["otlp", "console"], []),
        ({"OTEL_METRICS_EXPORTER": "prometheus,otlp"}, [], ["otlp", "prometheus"]),
        (ENDPOINT | {"OTEL_METRICS_EXPORTER": "none"}, ["otlp"], []),
        (ENDPOINT | {"OTEL_TRACES_EXPORTER": "console"}, ["console"], ["otlp"]),
        (ENDPOINT | {"OTEL_SDK_DISABLED": "TRUE"}, [], []),
        (ENDPOINT | {"OTEL_SDK_DISABLED": "false"}, ["otlp"], ["otlp"]),
        ({"OTEL_TRACES_EXPORTER": "", "OTEL_EXPORTER_OTLP_ENDPOINT": ""}, [], []),
    ],
)
def test_an_exporter_or_an_endpoint_turns_it_on(
    environ: dict[str, str], traces: list[str], metrics: list[str]
) -> None:
    settings = ExportSettings.from_env(environ)
    assert (settings.traces, settings.metrics) == (traces, metrics)


def test_a_signals_own_protocol_goes_before_the_general_one() -> None:
    environ = ENDPOINT | {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    settings = ExportSettings.from_env(environ)
    assert (settings.traces_protocol, settings.metrics_protocol) == ("grpc", "grpc")
    settings = ExportSettings.from_env(
        environ | {"OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "http/protobuf"}
    )
    assert (settings.traces_protocol, settings.metrics_protocol) == ("grpc", "http/protobuf")
    assert ExportSettings.from_env(ENDPOINT).traces_protocol == "http/protobuf"


def test_the_other_variables_are_read_too() -> None:
    settings = ExportSettings.from_env(
        {
            "OTEL_METRICS_EXPORTER": "prometheus",
            "OTEL_EXPORTER_PROMETHEUS_HOST": "0.0.0.0",
            "OTEL_EXPORTER_PROMETHEUS_PORT": "9999",
            "OTEL_METRIC_EXPORT_INTERVAL": "500",
            "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
            "OTEL_TRACES_SAMPLER_ARG": "0.25",
        }
    )
    assert (settings.prometheus_host, settings.prometheus_port) == ("0.0.0.0", 9999)
    assert settings.metric_interval_ms == 500
    assert settings.sampler == Sampler("parentbased_traceidratio", 0.25)
    default = ExportSettings.from_env({"OTEL_METRICS_EXPORTER": "prometheus"})
    assert (default.prometheus_host, default.prometheus_port) == ("127.0.0.1", 9464)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("OTEL_SDK_DISABLED", "yes", "true or false"),
        ("OTEL_TRACES_EXPORTER", "jaeger", "otlp, console"),
        ("OTEL_TRACES_EXPORTER", "prometheus", "otlp, console"),
        ("OTEL_TRACES_EXPORTER", "none,otlp", "otlp, console"),
        ("OTEL_METRICS_EXPORTER", "statsd", "otlp, console, prometheus"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json", "grpc, http/protobuf"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "udp", "grpc, http/protobuf"),
        ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "http/json", "grpc, http/protobuf"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4318", "http://"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://", "http://"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://x:99999", "http://"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "ftp://x", "http://"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon", "a number"),
        ("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "0", "a number"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "nan", "a number"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "brotli", "none, gzip, deflate"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/nowhere/ca.pem", "a file"),
        ("OTEL_EXPORTER_PROMETHEUS_PORT", "70000", "65535"),
        ("OTEL_EXPORTER_PROMETHEUS_PORT", "9464.5", "port"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "-1", "a number"),
        ("OTEL_TRACES_SAMPLER", "xray", "parentbased_always_on"),
        ("OTEL_TRACES_SAMPLER_ARG", "1.5", "from 0 to 1"),
        ("OTEL_TRACES_SAMPLER_ARG", "half", "from 0 to 1"),
    ],
)
def test_a_wrong_value_is_told_with_its_variable_and_what_is_allowed(
    name: str, value: str, allowed: str
) -> None:
    environ = ENDPOINT | {"OTEL_TRACES_SAMPLER": "traceidratio", name: value}
    with pytest.raises(TelemetryError) as raised:
        ExportSettings.from_env(environ)
    text = str(raised.value)
    assert name in text and repr(value) in text and allowed in text


def test_a_value_that_no_exporter_uses_is_not_looked_at() -> None:
    ExportSettings.from_env({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"})


@pytest.mark.parametrize(
    ("settings", "missing", "extra"),
    [
        (
            ExportSettings(traces=["otlp"]),
            "opentelemetry.exporter.otlp.proto.http.trace_exporter",
            "otlp",
        ),
        (
            ExportSettings(traces=["otlp"], traces_protocol="grpc"),
            "opentelemetry.exporter.otlp.proto.grpc.trace_exporter",
            "otlp",
        ),
        (
            ExportSettings(metrics=["otlp"]),
            "opentelemetry.exporter.otlp.proto.http.metric_exporter",
            "otlp",
        ),
        (ExportSettings(metrics=["prometheus"]), "prometheus_client", "prometheus"),
    ],
)
def test_a_package_that_is_missing_is_told_with_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, settings: ExportSettings, missing: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(TelemetryError, match=re.escape(f"pip install 'sandstream[{extra}]'")):
        span_exporters(settings) if settings.traces else Metrics(settings)


def test_what_the_exporter_itself_refuses_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "brotli")
    with pytest.raises(TelemetryError, match="OTEL_EXPORTER_OTLP_"):
        span_exporters(ExportSettings(traces=["otlp"], traces_protocol="grpc"))


class Recording(dict[str, str]):
    """An environment that knows who asked for what."""

    def __init__(self, values: dict[str, str]) -> None:
        super().__init__(values)
        self.asked: set[str] = set()

    def get(self, key: str, default: str | None = None) -> str | None:  # type: ignore[override]
        self.asked.add(key)
        return super().get(key, default)


def test_operations_explains_every_variable() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    section = page.partition("### Telemetry variables")[2].partition("\n## ")[0]
    explained = set(re.findall(r"`(OTEL_[A-Z_]+)`", section))
    sources = (ROOT / "actors" / "sandstream_actors" / "tracing").rglob("*.py")
    named = re.compile(r'"(OTEL_[A-Z_]+)"')
    known = {name for file in sources for name in named.findall(file.read_text())}
    environ = Recording({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_METRICS_EXPORTER": "otlp"})
    ExportSettings.from_env(environ)
    known |= environ.asked
    assert not known - {"OTEL_EXPORTER_OTLP"} - explained
    assert not explained - known - READ_BY_OPENTELEMETRY


def test_opentelemetry_is_imported_only_by_those_who_export() -> None:
    program = (
        "import sys, sandstream, sandstream.cli.main, sandstream_actors.tracing.export.exporter, "
        "sandstream_actors.tracing.metrics.instruments, sandstream_actors.tracing.export.loop;"
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0

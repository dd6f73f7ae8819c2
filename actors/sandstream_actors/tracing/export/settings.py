"""What to export and where: read once from OpenTelemetry's own variables.

Nothing is exported unless one of them asks for it. Variables about endpoints are only checked here;
the exporters read them by themselves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, TypeVar, get_args
from urllib.parse import urlsplit

import msgspec
from sandstream_bus.environment import environment
from sandstream_bus.errors import SandstreamError

from sandstream_actors.tracing.export.sampling import SAMPLERS, Sampler, SamplerName

OtlpProtocol = Literal["grpc", "http/protobuf"]
TracesTarget = Literal["otlp", "console"]
MetricsTarget = Literal["otlp", "console", "prometheus"]

_TRACES: tuple[TracesTarget, ...] = get_args(TracesTarget)
_METRICS: tuple[MetricsTarget, ...] = get_args(MetricsTarget)
_PROTOCOLS: tuple[OtlpProtocol, ...] = get_args(OtlpProtocol)
_OTLP: Final = "OTEL_EXPORTER_OTLP"
_NONE: Final = "none"
_FILES: Final = ("CERTIFICATE", "CLIENT_KEY", "CLIENT_CERTIFICATE")
_COMPRESSIONS: Final[dict[OtlpProtocol, tuple[str, ...]]] = {
    "grpc": ("gzip",),
    "http/protobuf": ("none", "gzip", "deflate"),
}
"""What the exporters support; for gRPC without compression, leave the variable unset."""
_DAY_S: Final = 86_400
_DAY_MS: Final = _DAY_S * 1000
T = TypeVar("T")


class TelemetryError(SandstreamError):
    """Telemetry cannot be exported as the environment requests."""

    code = "telemetry"


class ExportSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Empty lists: nothing is exported."""

    traces: list[TracesTarget] = []
    metrics: list[MetricsTarget] = []
    traces_protocol: OtlpProtocol = "http/protobuf"
    metrics_protocol: OtlpProtocol = "http/protobuf"
    prometheus_host: str = "127.0.0.1"
    prometheus_port: int = 9464
    """0: any free port."""
    metric_interval_ms: float = 60_000
    sampler: Sampler = Sampler()

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> ExportSettings:
        """Raises ``TelemetryError`` for values that make no sense."""
        env = _Env(environment(environ))
        if env.flag("OTEL_SDK_DISABLED"):
            return cls()
        traces: list[TracesTarget] = _targets(env, "TRACES", _TRACES)
        metrics: list[MetricsTarget] = _targets(env, "METRICS", _METRICS)
        return cls(
            traces=traces,
            metrics=metrics,
            traces_protocol=_otlp(env, "TRACES") if "otlp" in traces else "http/protobuf",
            metrics_protocol=_otlp(env, "METRICS") if "otlp" in metrics else "http/protobuf",
            prometheus_host=env.get("OTEL_EXPORTER_PROMETHEUS_HOST") or "127.0.0.1",
            prometheus_port=env.port("OTEL_EXPORTER_PROMETHEUS_PORT", 9464),
            metric_interval_ms=env.number("OTEL_METRIC_EXPORT_INTERVAL", 60_000, 1, _DAY_MS),
            sampler=_sampler(env),
        )


class _Env:
    """Environment variables. As OpenTelemetry requires, an empty variable counts as unset."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def get(self, name: str) -> str:
        return self._environ.get(name, "").strip()

    def wrong(self, name: str, allowed: str) -> TelemetryError:
        return TelemetryError(f"{name}={self._environ.get(name, '')!r}: allowed is {allowed}")

    def flag(self, name: str) -> bool:
        text = self.get(name).lower()
        if text not in ("", "true", "false"):
            raise self.wrong(name, "true or false")
        return text == "true"

    def number(self, name: str, default: float, least: float, most: float) -> float:
        text = self.get(name)
        try:
            number = float(text) if text else default
        except ValueError:
            number = math.nan
        if not least <= number <= most:
            raise self.wrong(name, f"a number from {least:g} to {most:g}")
        return number

    def port(self, name: str, default: int) -> int:
        number = self.number(name, default, 0, 65_535)
        if number != int(number):
            raise self.wrong(name, "a port")
        return int(number)

    def one_of(self, name: str, allowed: tuple[T, ...], default: T) -> T:
        text = self.get(name).lower()
        if not text:
            return default
        for each in allowed:
            if each == text:
                return each
        raise self.wrong(name, f"one of {', '.join(map(str, allowed))}")


def _targets(env: _Env, signal: str, allowed: tuple[T, ...]) -> list[T]:
    """The targets of a signal: a list, or OTLP if only an endpoint is given."""
    name = f"OTEL_{signal}_EXPORTER"
    asked = [each.strip().lower() for each in env.get(name).split(",") if each.strip()]
    if not asked:
        has_endpoint = any(env.get(each) for each in _variants("ENDPOINT", signal))
        return [each for each in allowed if each == "otlp" and has_endpoint]
    if asked == [_NONE]:
        return []
    unknown = [each for each in asked if each not in allowed]
    if unknown:
        raise env.wrong(name, f"none, or a list of {', '.join(map(str, allowed))}")
    return [each for each in allowed if each in asked]


def _variants(what: str, signal: str) -> tuple[str, str]:
    """The variable of a signal, which takes precedence, and that of all signals."""
    return f"{_OTLP}_{signal}_{what}", f"{_OTLP}_{what}"


def _otlp(env: _Env, signal: str) -> OtlpProtocol:
    """The protocol of a signal that uses OTLP; also checks its other variables."""
    for name in _variants("TIMEOUT", signal):
        env.number(name, 10, 0.001, _DAY_S)
    for what in _FILES:
        for name in _variants(what, signal):
            if env.get(name) and not Path(env.get(name)).is_file():
                raise env.wrong(name, "the path of a file that is there")
    own, general = _variants("PROTOCOL", signal)
    protocol: OtlpProtocol = env.one_of(
        own, _PROTOCOLS, env.one_of(general, _PROTOCOLS, default="http/protobuf")
    )
    for name in _variants("ENDPOINT", signal):
        _check_endpoint(env, name, protocol)
    for name in _variants("COMPRESSION", signal):
        env.one_of(name, _COMPRESSIONS[protocol], "gzip")
    return protocol


def _check_endpoint(env: _Env, name: str, protocol: OtlpProtocol) -> None:
    url = env.get(name)
    if not url or (protocol == "grpc" and "://" not in url):
        return
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_url = False
    if not is_url:
        raise env.wrong(name, "a URL like http://127.0.0.1:4318 (4317 for grpc)")


def _sampler(env: _Env) -> Sampler:
    name: SamplerName = env.one_of("OTEL_TRACES_SAMPLER", SAMPLERS, "parentbased_always_on")
    if not name.endswith("traceidratio"):
        return Sampler(name)
    return Sampler(name, env.number("OTEL_TRACES_SAMPLER_ARG", 1, 0, 1))

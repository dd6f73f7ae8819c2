"""What ``doctor`` says about how often NATS servers sync to disk.

A client cannot ask JetStream for it: only the HTTP monitoring of each server knows. The private
server has none; how it was started is in its record.
"""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from urllib.parse import urlsplit

import msgspec
from sandstream_bus.embedded.server_config import sync_seconds
from sandstream_bus.embedded.statedir import StateDir

from sandstream.cli.commands.doctor.checks import Check, ok, problem, warning
from sandstream.settings import Settings

_TIMEOUT_S = 3.0
_SLOW_S = 2.0
"""A private server syncs each second; much more than that is NATS's default of two minutes."""
_LARGEST = 4 * 1024 * 1024
_HOW = "set sync_interval in nats.conf, as deploy/nats.conf does: `always`, or 1s"


class _JetStreamConfig(msgspec.Struct):
    sync_interval: int = 0
    sync_always: bool = False


class _JetStream(msgspec.Struct):
    config: _JetStreamConfig | None = None


class _Varz(msgspec.Struct):
    server_name: str = ""
    jetstream: _JetStream | None = None


async def check_sync(settings: Settings) -> list[Check]:
    """One finding for each server whose monitoring is known."""
    urls = settings.monitor_urls
    if not urls and settings.nats is None:
        record = StateDir.at(settings.home).read_record()
        if record is not None:
            return [_of_interval(record.server_name, sync_seconds(record.sync))]
    if not urls:
        return [
            warning(
                "sync",
                "unknown: only a NATS server's monitoring shows how often it syncs to disk",
                "start the server with `http_port: 8222` and say --monitor http://HOST:8222, or "
                "set NATS_MONITOR_URL (one URL for each server, separated by commas)",
            )
        ]
    return list(await asyncio.gather(*(asyncio.to_thread(_check, url) for url in urls)))


def _check(url: str) -> Check:
    shown = urlsplit(url)._replace(netloc=urlsplit(url).netloc.rpartition("@")[2]).geturl()
    try:
        varz = _ask(url)
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        reason = getattr(error, "reason", error)
        return problem(
            "sync",
            f"{shown} does not answer as the monitoring of a NATS server: {reason}",
            "correct NATS_MONITOR_URL or --monitor; the server needs `http_port`",
        )
    return _verdict(varz, shown)


def _ask(url: str) -> _Varz:
    if urlsplit(url).scheme not in ("http", "https"):
        raise ValueError("it must begin with http:// or https://")
    with urllib.request.urlopen(f"{url.rstrip('/')}/varz", timeout=_TIMEOUT_S) as answer:
        return msgspec.json.decode(answer.read(_LARGEST), type=_Varz)


def _verdict(varz: _Varz, url: str) -> Check:
    where = f"{varz.server_name or url}: "
    config = varz.jetstream.config if varz.jetstream is not None else None
    if config is None:
        return problem(
            "sync", f"{where}JetStream is not enabled", "enable it: `jetstream {}` in nats.conf"
        )
    seconds = 0.0 if config.sync_always else config.sync_interval / 1e9
    return _of_interval(varz.server_name or url, seconds)


def _of_interval(server: str, seconds: float) -> Check:
    """``seconds``: 0 for always."""
    where = f"{server}: "
    if seconds == 0:
        return ok("sync", f"{where}always; acknowledged data survives a power loss")
    if seconds > _SLOW_S:
        return warning(
            "sync",
            f"{where}each {_duration(seconds)}; a power loss can lose that much acknowledged data",
            _HOW,
        )
    return ok(
        "sync",
        f"{where}each {_duration(seconds)}; a power loss can lose that much acknowledged data",
    )


def _duration(seconds: float) -> str:
    if seconds >= 60:
        return f"{seconds / 60:g} min"
    return f"{seconds:g} s"

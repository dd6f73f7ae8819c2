"""What the control plane answers: boxes and errors as JSON."""

from __future__ import annotations

import time
from typing import Any

from aiohttp import web
from vendors.e2b.sandbox import Sandbox, stamp

ENVD_VERSION = "0.6.13"
CLIENT_ID = "6532622b"
_SIZE = {"cpuCount": 2, "memoryMB": 1024, "diskSizeMB": 10240}


def error(
    status: int, message: str, code: str | None = None, headers: dict[str, str] | None = None
) -> web.Response:
    body: dict[str, Any] = {"code": status, "message": message}
    if code is not None:
        body["error_code"] = code
    return web.json_response(body, status=status, headers=headers)


def not_found(box_id: str) -> web.Response:
    return error(404, f"Sandbox \"{box_id}\" doesn't exist or you don't have access to it")


def created(box: Sandbox, domain: str) -> dict[str, Any]:
    """The answer to a creation, a connection or a fork."""
    body: dict[str, Any] = {
        "templateID": box.plan.template_id,
        "sandboxID": box.id,
        "clientID": CLIENT_ID,
        "envdVersion": ENVD_VERSION,
        "domain": domain,
    }
    if box.plan.template.alias:
        body["alias"] = box.plan.template.alias
    if box.token is not None:
        body["envdAccessToken"] = box.token
    if box.traffic_token is not None:
        body["trafficAccessToken"] = box.traffic_token
    return body


def listed(box: Sandbox) -> dict[str, Any]:
    """A box in a list."""
    body: dict[str, Any] = {
        "templateID": box.plan.template_id,
        "sandboxID": box.id,
        "clientID": CLIENT_ID,
        "startedAt": stamp(box.started_at + box.clock_ahead_s),
        "endAt": stamp(box.ends_at + box.clock_ahead_s),
        "envdVersion": ENVD_VERSION,
        "state": "running" if box.state == "running" else "paused",
        **_SIZE,
    }
    if box.plan.template.alias:
        body["alias"] = box.plan.template.alias
    if box.plan.metadata is not None:
        body["metadata"] = box.plan.metadata
    return body


def detail(box: Sandbox, domain: str) -> dict[str, Any]:
    """All about one box."""
    body = listed(box) | {
        "domain": domain,
        "allowInternetAccess": box.plan.allow_internet_access,
        "lifecycle": {
            "autoResume": box.plan.auto_resume,
            "onTimeout": "pause" if box.plan.auto_pause else "kill",
        },
    }
    if box.token is not None:
        body["envdAccessToken"] = box.token
    if box.plan.network is not None:
        body["network"] = box.plan.network
    if box.pause_mode is not None:
        body["pauseMode"] = box.pause_mode
    return body


def metric() -> dict[str, Any]:
    """One measurement; its values are made up."""
    now = time.time()
    return {
        "timestamp": stamp(now),
        "timestampUnix": int(now),
        "cpuCount": _SIZE["cpuCount"],
        "cpuUsedPct": 1.0,
        "memUsed": 100 << 20,
        "memTotal": _SIZE["memoryMB"] << 20,
        "memCache": 10 << 20,
        "diskUsed": 1 << 30,
        "diskTotal": _SIZE["diskSizeMB"] << 20,
    }

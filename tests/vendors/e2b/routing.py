"""The vendor's proxy in front of all boxes: which box and port a request is for.

A request names them in the host (``8000-ibox.domain``) or, at a shared address, in two headers. A
box that is gone or paused is answered with 502, as the vendor's proxy does.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from aiohttp import web
from vendors.e2b.fleet import Fleet, TooMany
from vendors.e2b.sandbox import Sandbox

ENVD_PORT = 49983
TRAFFIC_TOKEN = "e2b-traffic-access-token"
_ID_HEADER, _PORT_HEADER = "E2b-Sandbox-Id", "E2b-Sandbox-Port"
_BOX_ID = re.compile(r"[a-z0-9]+")


class Unroutable(Exception):
    """Answered by the proxy itself."""

    def __init__(self, response: web.Response) -> None:
        super().__init__(response.status)
        self.response = response


@dataclass(frozen=True)
class Target:
    box_id: str
    port: int


def named_target(request: web.Request) -> Target | None:
    """The target that a request names. ``None``: it names none, or not completely."""
    try:
        return target(request)
    except Unroutable:
        return None


def target(request: web.Request) -> Target:
    """Raises :class:`Unroutable` if the request names no box and port."""
    box_id, port = request.headers.get(_ID_HEADER, ""), request.headers.get(_PORT_HEADER, "")
    if _is_shared(request.host) and (box_id or port):
        if not box_id or not port:
            raise Unroutable(_plain(400, "missing header"))
    else:
        port, dash, rest = request.host.partition(".")[0].partition("-")
        if "." not in request.host or not dash:
            raise Unroutable(_plain(400, "Invalid host"))
        box_id = rest.split("-")[0]
    if not port.isdecimal() or int(port) > 65535:
        raise Unroutable(_plain(400, "Invalid sandbox port"))
    if _BOX_ID.fullmatch(box_id) is None:
        raise Unroutable(_plain(400, "Invalid sandbox ID"))
    return Target(box_id, int(port))


async def running_box(fleet: Fleet, wanted: Target, request: web.Request) -> Sandbox:
    """The box, resumed if it was created so that traffic resumes it.

    Raises:
        Unroutable: it does not exist, it is paused, or the request may not reach it.
    """
    box = fleet.find(wanted.box_id)
    if box is not None and box.state == "paused" and box.plan.auto_resume:
        async with box.turn:
            if box.state == "paused" and box.pause_mode == "full":
                try:
                    await fleet.resume(box, box.plan.timeout_s)
                except TooMany:
                    raise Unroutable(_problem(429, wanted, "Sandbox limit reached")) from None
    if box is None or box.state != "running":
        raise Unroutable(_problem(502, wanted, "The sandbox was not found"))
    if box.traffic_token is not None and wanted.port != ENVD_PORT:
        _check_traffic_token(box.traffic_token, wanted, request)
    return box


def port_closed(wanted: Target) -> web.Response:
    return web.json_response(
        {
            "sandboxId": wanted.box_id,
            "message": "The sandbox is running but port is not open",
            "port": wanted.port,
            "code": 502,
        },
        status=502,
    )


def _check_traffic_token(token: str, wanted: Target, request: web.Request) -> None:
    given = request.headers.get(TRAFFIC_TOKEN)
    secured = "Sandbox is secured with traffic access token."
    if given is None:
        text = f"{secured} Token header '{TRAFFIC_TOKEN}' is missing"
        raise Unroutable(_problem(403, wanted, text))
    if given != token:
        text = f"{secured} Provided token in header '{TRAFFIC_TOKEN}' is invalid"
        raise Unroutable(_problem(403, wanted, text))


def _problem(status: int, wanted: Target, message: str) -> web.Response:
    body = {"sandboxId": wanted.box_id, "message": message, "code": status}
    return web.json_response(body, status=status)


def _plain(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=f"{text}\n")


def _is_shared(host: str) -> bool:
    """Whether this address is that of all boxes, so that headers tell them apart."""
    name = host.rpartition(":")[0] if ":" in host and not host.endswith("]") else host
    if name == "localhost" or name.startswith("sandbox."):
        return True
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True

"""What the control plane is asked: its requests, read and checked."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import unquote_plus

from aiohttp import web
from vendors.e2b import shapes
from vendors.e2b.shapes import ANY, ListOf, MapOf, Object
from vendors.server import Vendor

_NETWORK = Object(
    {
        "allowPublicTraffic": bool,
        "allowOut": ListOf(str),
        "denyOut": ListOf(str),
        "dnsServers": ListOf(str),
        "egressProxy": ANY,
        "maskRequestHost": str,
        "httpsPorts": ListOf(int),
        "rules": ANY,
    }
)
_CREATE = {
    "templateID!": str,
    "timeout": int,
    "autoPause": bool,
    "autoPauseMemory": bool,
    "autoResume": Object({"enabled!": bool}),
    "allow_internet_access": bool,
    "network": _NETWORK,
    "metadata": MapOf(str),
    "envVars": MapOf(str),
    "mcp": ANY,
    "iam": ANY,
    "volumeMounts": ListOf(Object({"name!": str, "path!": str})),
}
CREATE_V2 = Object(_CREATE)
CREATE_V1 = Object(_CREATE | {"secure": bool})
CONNECT_V2 = Object({"timeout": int, "memory": bool})
CONNECT_V1 = Object({"timeout!": int, "memory": bool})
PAUSE = Object({"memory": bool, "requireHealthyGuest": bool})
TIMEOUT = Object({"timeout!": int})
SNAPSHOT = Object({"name": str, "memory": bool})
FORK = Object({"timeout": int, "count": int})
NETWORK = Object({**_NETWORK.fields, "allow_internet_access": bool})
_KEY = re.compile(r"[a-z0-9-]{1,255}")
_LARGEST_PAGE = 100


class BadRequest(Exception):
    """Answered with 400 and this text."""


async def body(
    vendor: Vendor, request: web.Request, shape: Object, optional: bool = False
) -> dict[str, Any]:
    """The JSON of a request. Raises :class:`BadRequest`."""
    content = await request.read()
    if not content and optional:
        return {}
    if request.content_type != "application/json":
        vendor.protocol_error(request, f"content type {request.content_type}")
    try:
        found = json.loads(content)
    except ValueError as error:
        vendor.protocol_error(request, "the body is not JSON")
        raise BadRequest(f"Error when parsing request: {error}") from None
    findings = shapes.check(found, shape)
    for name in findings.unknown:
        vendor.protocol_error(request, f"unknown field {name}")
    if findings.wrong:
        vendor.protocol_error(request, "; ".join(findings.wrong))
        raise BadRequest(f"Error when parsing request: {'; '.join(findings.wrong)}")
    assert isinstance(found, dict)
    return {name: value for name, value in found.items() if value is not None}


def idempotency_key(vendor: Vendor, request: web.Request) -> str | None:
    key = request.headers.get("Idempotency-Key")
    if key is not None and _KEY.fullmatch(key) is None:
        vendor.protocol_error(request, f"Idempotency-Key: {key!r}")
        raise BadRequest("Invalid Idempotency-Key header")
    return key


@dataclass(frozen=True)
class Page:
    """A part of a list, in order of time and id."""

    limit: int
    ascending: bool
    after: tuple[float, str] | None

    def token(self, position: tuple[float, str]) -> str:
        parts = [repr(position[0]), position[1], *(["asc"] if self.ascending else [])]
        return base64.urlsafe_b64encode("__".join(parts).encode()).decode()


@dataclass(frozen=True)
class ListQuery:
    metadata: dict[str, str]
    states: list[str]
    started_after: float
    template: str | None
    page: Page


def list_query(vendor: Vendor, request: web.Request) -> ListQuery:
    """The filters of a list of boxes. Raises :class:`BadRequest`."""
    known = {"metadata", "state", "order", "startedAfter", "template", "nextToken", "limit"}
    _note_unknown(vendor, request, known)
    query = request.query
    states = query.get("state", "running,paused").split(",")
    if set(states) - {"running", "paused"}:
        raise BadRequest(f'parameter "state" in query has an error: {query["state"]}')
    started_after = 0.0
    if "startedAfter" in query:
        try:
            started_after = datetime.fromisoformat(query["startedAfter"]).timestamp()
        except ValueError:
            raise BadRequest('parameter "startedAfter" in query has an error') from None
    return ListQuery(
        metadata=_metadata(query.get("metadata")),
        states=states,
        started_after=started_after,
        template=query.get("template"),
        page=page(request, query.get("order", "desc")),
    )


def snapshot_query(vendor: Vendor, request: web.Request) -> Page:
    _note_unknown(vendor, request, {"sandboxID", "name", "limit", "nextToken"})
    return page(request, "desc")


def page(request: web.Request, order: str) -> Page:
    if order not in ("asc", "desc"):
        raise BadRequest(f'Invalid order parameter: unknown order "{order}"')
    text = request.query.get("limit", str(_LARGEST_PAGE))
    if not text.isdecimal() or not 1 <= int(text) <= _LARGEST_PAGE:
        raise BadRequest('parameter "limit" in query has an error: number must be from 1 to 100')
    after = None
    if token := request.query.get("nextToken"):
        try:
            parts = base64.urlsafe_b64decode(token).decode().split("__")
            after = (float(parts[0]), parts[1])
            if (parts[2:] == ["asc"]) != (order == "asc"):
                raise ValueError("the order has changed")
        except (ValueError, IndexError):
            raise BadRequest("Invalid next token") from None
    return Page(int(text), order == "asc", after)


def _metadata(text: str | None) -> dict[str, str]:
    """The filter is quoted as a whole, and each key and value once more inside of it."""
    if text is None:
        return {}
    found = {}
    for part in unquote_plus(text).split("&"):
        key, equals, value = part.partition("=")
        if not equals:
            raise BadRequest("Error parsing metadata")
        found[unquote_plus(key)] = unquote_plus(value)
    return found


def _note_unknown(vendor: Vendor, request: web.Request, known: set[str]) -> None:
    for name in set(request.query) - known:
        vendor.protocol_error(request, f"unknown parameter {name}")

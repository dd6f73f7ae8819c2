"""``GET /sandbox``: filters and pages over the search index."""

from __future__ import annotations

import base64
import json
from typing import Any

from aiohttp import web
from vendors.daytona import checks
from vendors.daytona.refusals import Refusal
from vendors.server import Vendor

LIMIT = 100
PREFIXES = ("id", "name")
EQUAL = {
    "states": "state",
    "snapshots": "snapshot",
    "regionIds": "target",
    "sandboxClasses": "sandboxClass",
}
LEAST = {"minCpu": "cpu", "minMemoryGiB": "memory", "minDiskGiB": "disk", "minGpu": "gpu"}
MOST = {"maxCpu": "cpu", "maxMemoryGiB": "memory", "maxDiskGiB": "disk", "maxGpu": "gpu"}
AFTER = {
    "createdAtAfter": "createdAt",
    "lastEventAfter": "lastActivityAt",
    "autoDestroyAtAfter": "autoDestroyAt",
}
BEFORE = {
    "createdAtBefore": "createdAt",
    "lastEventBefore": "lastActivityAt",
    "autoDestroyAtBefore": "autoDestroyAt",
}
FLAGS = {"isPublic": "public", "isRecoverable": "recoverable"}
OTHERS = ("cursor", "limit", "labels", "includeErroredDeleted", "includeWarm", "sort", "order")
SORTS = ("name", "cpu", "memory", "disk", "createdAt", "lastActivityAt", "lastEvent")


def page(
    request: web.Request, vendor: Vendor, items: list[dict[str, Any]], *, heeds_labels: bool = True
) -> dict[str, Any]:
    """One page of the matching boxes, and the cursor of the next one."""
    known = (*PREFIXES, *EQUAL, *LEAST, *MOST, *AFTER, *BEFORE, *FLAGS, *OTHERS)
    asked = checks.query(request, vendor, *known)
    try:
        labels = json.loads(asked.get("labels", "{}"))
    except ValueError:
        raise Refusal(400, "Invalid labels JSON format") from None
    if not heeds_labels:
        labels = {}
    found = [item for item in items if _matches(request, labels, item)]
    field = asked.get("sort", "lastActivityAt")
    field = "lastActivityAt" if field not in SORTS or field == "lastEvent" else field
    found.sort(key=lambda item: item["id"])
    found.sort(key=lambda item: item[field], reverse=asked.get("order", "desc") == "desc")
    start = _position(asked["cursor"]) if "cursor" in asked else 0
    limit = asked.get("limit", str(LIMIT))
    if not limit.isdigit() or not 1 <= int(limit) <= 200:
        raise Refusal(400, "limit must not be greater than 200, limit must not be less than 1")
    end = start + int(limit)
    cursor = base64.urlsafe_b64encode(str(end).encode()).decode() if end < len(found) else None
    return {"items": found[start:end], "nextCursor": cursor}


def _matches(request: web.Request, labels: dict[str, str], item: dict[str, Any]) -> bool:
    asked = request.query
    return (
        all(item["labels"].get(name) == value for name, value in labels.items())
        and all(item[name].startswith(asked.get(name, "")) for name in PREFIXES)
        and all(item.get(ours) in asked.getall(it) for it, ours in EQUAL.items() if it in asked)
        and all(item[ours] >= int(asked[it]) for it, ours in LEAST.items() if it in asked)
        and all(item[ours] <= int(asked[it]) for it, ours in MOST.items() if it in asked)
        and all(item.get(ours, "") >= asked[it] for it, ours in AFTER.items() if it in asked)
        and all(item.get(ours, "~") <= asked[it] for it, ours in BEFORE.items() if it in asked)
        and all(str(item[ours]).lower() == asked[it] for it, ours in FLAGS.items() if it in asked)
    )


def _position(cursor: str) -> int:
    try:
        return int(base64.urlsafe_b64decode(cursor))
    except ValueError:
        raise Refusal(400, "Invalid cursor") from None

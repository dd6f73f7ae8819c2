"""The service ``filesystem.Filesystem``: entries of directories. Contents have their own route."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web
from vendors.e2b import connect_rpc, entries
from vendors.e2b.connect_rpc import RpcError
from vendors.e2b.envd import Envd
from vendors.e2b.sandbox import Sandbox
from vendors.e2b.shapes import Object
from vendors.e2b.users import User

_PATH = Object({"path": str})
_NOT_OFFERED = ("WatchDir", "CreateWatcher", "GetWatcherEvents", "RemoveWatcher")


class FilesystemService:
    def __init__(self, envd: Envd) -> None:
        self._envd = envd
        self._vendor = envd.vendor

    def add_routes(self, add: Any) -> None:
        for name, handler in {
            "Stat": self._stat,
            "ListDir": self._list_dir,
            "MakeDir": self._make_dir,
            "Move": self._move,
            "Remove": self._remove,
        }.items():
            add("POST", f"/filesystem.Filesystem/{name}", self._envd.rpc(handler))
        for name in _NOT_OFFERED:
            add("POST", f"/filesystem.Filesystem/{name}", self._envd.rpc(self._not_offered))

    async def _stat(self, request: web.Request, box: Sandbox, user: User) -> web.StreamResponse:
        message = await connect_rpc.one_message(self._vendor, request, _PATH)
        path = user.resolved(message.get("path", ""))
        found = await asyncio.to_thread(entries.entry, box.machine, path)
        return connect_rpc.unary_response({"entry": found})

    async def _list_dir(self, request: web.Request, box: Sandbox, user: User) -> web.StreamResponse:
        shape = Object({"path": str, "depth": int})
        message = await connect_rpc.one_message(self._vendor, request, shape)
        path = user.resolved(message.get("path", ""))
        depth = message.get("depth", 0) or 1
        found = await asyncio.to_thread(entries.list_directory, box.machine, path, depth)
        return connect_rpc.unary_response({"entries": found} if found else {})

    async def _make_dir(self, request: web.Request, box: Sandbox, user: User) -> web.StreamResponse:
        message = await connect_rpc.one_message(self._vendor, request, _PATH)
        path = user.resolved(message.get("path", ""))
        found = await asyncio.to_thread(entries.make_directory, box.machine, path)
        return connect_rpc.unary_response({"entry": found})

    async def _move(self, request: web.Request, box: Sandbox, user: User) -> web.StreamResponse:
        shape = Object({"source": str, "destination": str})
        message = await connect_rpc.one_message(self._vendor, request, shape)
        source = user.resolved(message.get("source", ""))
        destination = user.resolved(message.get("destination", ""))
        found = await asyncio.to_thread(entries.move, box.machine, source, destination)
        return connect_rpc.unary_response({"entry": found})

    async def _remove(self, request: web.Request, box: Sandbox, user: User) -> web.StreamResponse:
        message = await connect_rpc.one_message(self._vendor, request, _PATH)
        path = user.resolved(message.get("path", ""))
        await asyncio.to_thread(entries.remove, box.machine, path)
        return connect_rpc.unary_response({})

    async def _not_offered(
        self, request: web.Request, box: Sandbox, user: User
    ) -> web.StreamResponse:
        self._vendor.protocol_error(request, "this local server does not watch directories")
        raise RpcError("unimplemented", "not offered by this local server")

"""The service ``process.Process``: commands and terminals."""

from __future__ import annotations

import asyncio
import base64
import binascii
import signal
from typing import Any

from aiohttp import web
from vendors.e2b import connect_rpc
from vendors.e2b.box_process import BoxProcess, NoInput
from vendors.e2b.connect_rpc import EventStream, RpcError
from vendors.e2b.envd import Envd
from vendors.e2b.output import Subscription
from vendors.e2b.sandbox import Sandbox
from vendors.e2b.shapes import ListOf, MapOf, Object
from vendors.e2b.users import User

_DEFAULT_KEEPALIVE_S = 90.0
_POLL_S = 0.1
"""How soon it is noticed that a client has gone, where nothing else happens."""
_SELECTOR = Object({"pid": int, "tag": str})
_PTY = Object({"size": Object({"cols": int, "rows": int})})
_INPUT = Object({"stdin": str, "pty": str})
_START = Object(
    {
        "process!": Object(
            {"cmd": str, "args": ListOf(str), "envs": MapOf(str), "cwd": str},
        ),
        "pty": _PTY,
        "tag": str,
        "stdin": bool,
    }
)
_PROCESS = {"process!": _SELECTOR}
_STREAM_INPUT = Object(
    {
        "start": Object(_PROCESS),
        "data": Object({"input!": _INPUT}),
        "keepalive": Object({}),
    }
)
_SIGNALS = {"SIGNAL_SIGKILL": signal.SIGKILL, "SIGNAL_SIGTERM": signal.SIGTERM}


class ProcessService:
    def __init__(self, envd: Envd) -> None:
        self._envd = envd
        self._vendor = envd.vendor

    def add_routes(self, add: Any) -> None:
        for name, handler in {
            "Start": self._start,
            "Connect": self._connect,
            "List": self._list,
            "SendSignal": self._send_signal,
            "SendInput": self._send_input,
            "StreamInput": self._stream_input,
            "CloseStdin": self._close_stdin,
            "Update": self._update,
        }.items():
            add("POST", f"/process.Process/{name}", self._envd.rpc(handler))

    async def _start(self, request: web.Request, box: Sandbox, user: User) -> web.StreamResponse:
        message = await connect_rpc.one_message(self._vendor, request, _START)
        timeout_s = connect_rpc.timeout_s(self._vendor, request)
        table = box.processes
        process = await table.start(message, user)
        subscription = process.publisher.subscribe()
        table.begin(process, timeout_s)
        return await self._follow(request, box, process, subscription, timeout_s)

    async def _connect(self, request: web.Request, box: Sandbox, user: User) -> web.StreamResponse:
        message = await connect_rpc.one_message(self._vendor, request, Object(_PROCESS))
        timeout_s = connect_rpc.timeout_s(self._vendor, request)
        selector = message["process"]
        try:
            process = box.processes.find(selector)
        except RpcError:
            ended = box.processes.find_ended(selector)
            if ended is None:
                raise
            pid, event = ended
            stream = EventStream(request)
            await stream.open()
            await stream.send({"event": {"start": {"pid": pid}}})
            await stream.send({"event": event})
            return await stream.end()
        subscription = process.publisher.subscribe()
        return await self._follow(request, box, process, subscription, timeout_s)

    async def _follow(
        self,
        request: web.Request,
        box: Sandbox,
        process: BoxProcess,
        subscription: Subscription,
        timeout_s: float | None,
    ) -> web.StreamResponse:
        """Send the events of a process until its end, the deadline, or the client's leaving."""
        stream = EventStream(request)
        try:
            await stream.open()
            await stream.send({"event": {"start": {"pid": process.pid}}})
            error = await self._send_events(stream, request, box, subscription, timeout_s)
            return await stream.end(error)
        finally:
            process.publisher.unsubscribe(subscription)

    async def _send_events(
        self,
        stream: EventStream,
        request: web.Request,
        box: Sandbox,
        subscription: Subscription,
        timeout_s: float | None,
    ) -> RpcError | None:
        loop = asyncio.get_running_loop()
        deadline = None if timeout_s is None else loop.time() + timeout_s
        keepalive_s = self._keepalive_s(request)
        next_keepalive = loop.time() + keepalive_s
        following = asyncio.create_task(subscription.events.get())
        try:
            while not stream.exchange.closed:
                left = _POLL_S if deadline is None else max(0.0, deadline - loop.time())
                await asyncio.wait({following}, timeout=min(_POLL_S, left))
                if stream.exchange not in box.open:
                    text = f"the connection to sandbox {box.id} ended before the stream completed"
                    return RpcError("unavailable", text)
                if following.done():
                    event = following.result()
                    if event is None:
                        return None
                    await stream.send({"event": event})
                    next_keepalive = loop.time() + keepalive_s
                    following = asyncio.create_task(subscription.events.get())
                elif deadline is not None and loop.time() >= deadline:
                    return RpcError("deadline_exceeded", "context deadline exceeded")
                elif loop.time() >= next_keepalive:
                    await stream.send({"event": {"keepalive": {}}})
                    next_keepalive = loop.time() + keepalive_s
            return None
        finally:
            following.cancel()

    def _keepalive_s(self, request: web.Request) -> float:
        if self._envd.settings.keepalive_s is not None:
            return self._envd.settings.keepalive_s
        text = request.headers.get("Keepalive-Ping-Interval", "")
        return float(text) if text.isdecimal() and int(text) else _DEFAULT_KEEPALIVE_S

    async def _list(self, request: web.Request, box: Sandbox, user: User) -> web.StreamResponse:
        await connect_rpc.one_message(self._vendor, request, Object({}))
        found = []
        for process in box.processes.running:
            entry: dict[str, Any] = {"pid": process.pid, "config": process.config}
            if process.tag is not None:
                entry["tag"] = process.tag
            found.append(entry)
        return connect_rpc.unary_response({"processes": found} if found else {})

    async def _send_signal(
        self, request: web.Request, box: Sandbox, user: User
    ) -> web.StreamResponse:
        message = await connect_rpc.one_message(
            self._vendor, request, Object({**_PROCESS, "signal": str})
        )
        process = box.processes.find(message["process"])
        number = _SIGNALS.get(message.get("signal", ""))
        if number is None:
            raise RpcError("unimplemented", f"invalid signal: {message.get('signal')}")
        await process.send_signal(number)
        return connect_rpc.unary_response({})

    async def _send_input(
        self, request: web.Request, box: Sandbox, user: User
    ) -> web.StreamResponse:
        message = await connect_rpc.one_message(
            self._vendor, request, Object({**_PROCESS, "input!": _INPUT})
        )
        await _write(box.processes.find(message["process"]), message["input"])
        return connect_rpc.unary_response({})

    async def _stream_input(
        self, request: web.Request, box: Sandbox, user: User
    ) -> web.StreamResponse:
        process: BoxProcess | None = None
        async for message in connect_rpc.many_messages(self._vendor, request, _STREAM_INPUT):
            if "start" in message:
                process = box.processes.find(message["start"]["process"])
            elif "data" in message:
                if process is None:
                    self._vendor.protocol_error(request, "data before the start event")
                    raise RpcError("internal", "no process")
                await _write(process, message["data"]["input"])
            elif "keepalive" not in message:
                raise RpcError("unimplemented", "invalid event type <nil>")
        return await connect_rpc.answer_stream(request, {})

    async def _close_stdin(
        self, request: web.Request, box: Sandbox, user: User
    ) -> web.StreamResponse:
        message = await connect_rpc.one_message(self._vendor, request, Object(_PROCESS))
        process = box.processes.find(message["process"])
        try:
            process.close_stdin()
        except NoInput as error:
            raise RpcError("unknown", f"error closing stdin: {error}") from None
        return connect_rpc.unary_response({})

    async def _update(self, request: web.Request, box: Sandbox, user: User) -> web.StreamResponse:
        message = await connect_rpc.one_message(
            self._vendor, request, Object({**_PROCESS, "pty": _PTY})
        )
        process = box.processes.find(message["process"])
        if "pty" in message:
            size = message["pty"].get("size", {})
            try:
                process.resize(size.get("rows", 0), size.get("cols", 0))
            except NoInput as error:
                raise RpcError("internal", f"error resizing tty: {error}") from None
        return connect_rpc.unary_response({})


async def _write(process: BoxProcess, given: dict[str, Any]) -> None:
    kind = next(iter(given), None)
    try:
        data = base64.b64decode(given.get(kind or "", ""), validate=True)
    except binascii.Error as error:
        raise RpcError("invalid_argument", f"unmarshal message: {error}") from None
    try:
        if kind == "stdin":
            await process.write_stdin(data)
        elif kind == "pty":
            await process.write_terminal(data)
        else:
            raise RpcError("unimplemented", "invalid input type <nil>")
    except NoInput as error:
        place = "tty" if kind == "pty" else "stdin"
        raise RpcError("internal", f"error writing to {place}: {error}") from None

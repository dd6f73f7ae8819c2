"""Chat sessions as Temporal's demo has them: a workflow per session, its agent run by the plug-in.

Starts the development server of Temporal, which keeps its log in a file, and a worker. The callers
are in the process of the worker. Where the demo's terminal asks for news once a second, an update
here returns the answer as soon as the workflow has it.

    python temporal_sessions.py temporal asyncio
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import lab_desk
from temporalio import workflow
from temporalio.client import Client
from temporalio.contrib.openai_agents import ModelActivityParameters, OpenAIAgentsPlugin
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    from agents import Agent, Runner

QUEUE = "sessions"
CONNECT_S = 30.0


@workflow.defn
class ChatSession:
    """One session: its messages are answered one after the other."""

    def __init__(self) -> None:
        self._waiting: list[str] = []
        self._history: list[Any] = []
        self._answers: list[str] = []

    @workflow.run  # type: ignore[untyped-decorator]
    async def run(self) -> None:
        agent = Agent(name="Talker", instructions="Talk.", model="gpt-4.1")
        while True:
            await workflow.wait_condition(lambda: bool(self._waiting))
            message = {"role": "user", "content": self._waiting.pop(0)}
            result = await Runner.run(agent, [*self._history, message])
            self._history = result.to_input_list()
            self._answers.append(str(result.final_output))

    @workflow.update  # type: ignore[untyped-decorator]
    async def ask(self, text: str) -> str:
        number = len(self._answers) + len(self._waiting)
        self._waiting.append(text)
        await workflow.wait_condition(lambda: len(self._answers) > number)
        return self._answers[number]


class Desk:
    """The callers of the sessions."""

    def __init__(self, client: Client, server: subprocess.Popen[bytes]) -> None:
        self._client = client
        self._server = server

    async def __call__(self, request: dict[str, Any]) -> dict[str, Any]:
        match request.pop("do"):
            case "pids":
                return {"server": self._server.pid, "worker": os.getpid()}
            case "begin":
                return await self._begin(**request)
            case "ask":
                return await self._ask(**request)
            case other:
                raise ValueError(other)

    async def _begin(self, names: list[str], text: str, at_once: int) -> dict[str, Any]:
        """New sessions, each with one turn."""
        free = asyncio.Semaphore(at_once)

        async def begin(name: str) -> None:
            async with free:
                await self._client.start_workflow(ChatSession.run, id=name, task_queue=QUEUE)
                await self._answer(name, text)

        await asyncio.gather(*(begin(name) for name in names))
        return {}

    async def _ask(self, name: str, text: str) -> dict[str, Any]:
        began = time.perf_counter()
        answer = await self._answer(name, text)
        return {"answer": answer, "ms": (time.perf_counter() - began) * 1000}

    async def _answer(self, name: str, text: str) -> str:
        handle = self._client.get_workflow_handle_for(ChatSession.run, name)
        answer: str = await handle.execute_update(ChatSession.ask, text)
        return answer


async def opened() -> lab_desk.Handler:
    address = _start_server(Path(os.environ["SANDSTREAM_HOME"]))
    parameters = ModelActivityParameters(start_to_close_timeout=timedelta(seconds=60))
    client = await _connected(address, OpenAIAgentsPlugin(model_params=parameters))
    worker = Worker(client, task_queue=QUEUE, workflows=[ChatSession])
    _kept.append(asyncio.ensure_future(worker.run()))
    return Desk(client, _servers[0])


def _start_server(home: Path) -> str:
    """Start the development server; return its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    home.mkdir(parents=True, exist_ok=True)
    server = subprocess.Popen(
        [
            *(str(Path(sys.executable).with_name("temporal")), "server", "start-dev"),
            *("--headless", "--ip", "127.0.0.1", "--port", str(port)),
            *("--db-filename", str(home / "temporal.db"), "--log-level", "error"),
        ],
        stdout=subprocess.DEVNULL,
    )
    _servers.append(server)
    return f"127.0.0.1:{port}"


async def _connected(address: str, plugin: OpenAIAgentsPlugin) -> Client:
    deadline = time.monotonic() + CONNECT_S
    while True:
        try:
            return await Client.connect(address, plugins=[plugin])
        except RuntimeError:  # the server does not listen yet
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.2)


_kept: list[Any] = []
_servers: list[subprocess.Popen[bytes]] = []

if __name__ == "__main__":
    try:
        lab_desk.serve(opened, sys.argv[2])
    finally:
        for started in _servers:
            started.terminate()
            started.wait()

"""`ScriptedModel`: a model server that answers from its script, for a test or a demo.

Owns the server's lifetime, on the caller's event loop (`async with`) or in its own thread (`with`),
and the check at its end.
"""

import asyncio
import os
import threading
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self

from sandstream.testing.endpoints import Endpoints
from sandstream.testing.http_server import HttpServer
from sandstream.testing.journal import Journal, Request
from sandstream.testing.script import Conversation, Script, ScriptError, as_conversation
from sandstream.testing.steps import Step


class ScriptedModel:
    """An OpenAI-compatible server on loopback that answers from a script.

    A request is answered by the conversation script that matches it, otherwise by the next step of
    the ordered list, otherwise by the default conversation, otherwise with HTTP 500. When the
    context ends without an exception, unexpected requests and unused steps raise `ScriptError`.

    Args:
        steps: The answers, in order.
        conversations: Answers for single conversations, see `script_for`.
        default: Answers for requests that neither of them answers.
        strict: Raise `ScriptError` at the end if the script was not followed.
        port: The port; 0 picks a free one.
        host: The address to listen on.
        journal_path: Also write each request to this file, as a JSON line.
        bodies: Keep the bodies of requests in the journal; turn it off for long benchmarks.
        models: The names that the endpoint `/v1/models` lists.

    Example:
        async with ScriptedModel([tool_call("add", {"a": 1, "b": 2}), text("3")]) as model:
            client = AsyncOpenAI(base_url=model.base_url, api_key="none")
            agent = Agent(name="A", tools=[add], model=OpenAIResponsesModel("scripted", client))
            result = await Runner.run(agent, "1 + 2?")
    """

    def __init__(
        self,
        steps: Iterable[Step] = (),
        *,
        conversations: Iterable[Conversation] = (),
        default: Conversation | Sequence[Step] | None = None,
        strict: bool = True,
        port: int = 0,
        host: str = "127.0.0.1",
        journal_path: str | os.PathLike[str] | None = None,
        bodies: bool = True,
        models: Sequence[str] = ("scripted",),
    ) -> None:
        script = Script(
            steps=tuple(steps),
            conversations=tuple(conversations),
            default=as_conversation(default),
        )
        self._strict = strict
        self._asked_port = port
        self._host = host
        self._port: int | None = None
        self._journal = Journal(journal_path, bodies=bodies)
        self._endpoints = Endpoints(script, self._journal, tuple(models))
        self._server = HttpServer(self._endpoints)
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None

    @classmethod
    def from_script(
        cls,
        script: Script,
        *,
        strict: bool = True,
        port: int = 0,
        host: str = "127.0.0.1",
        journal_path: str | os.PathLike[str] | None = None,
        bodies: bool = True,
    ) -> "ScriptedModel":
        """Make a server for a `Script`, for example one read by `Script.from_json`.

        Args:
            script: All answers.
            strict: Raise `ScriptError` at the end if the script was not followed.
            port: The port; 0 picks a free one.
            host: The address to listen on.
            journal_path: Also write each request to this file, as a JSON line.
            bodies: Keep the bodies of requests in the journal.

        Returns:
            The server, not started yet.
        """
        return cls(
            script.steps,
            conversations=script.conversations,
            default=script.default,
            strict=strict,
            port=port,
            host=host,
            journal_path=journal_path,
            bodies=bodies,
        )

    @property
    def base_url(self) -> str:
        """The base URL for the client, including `/v1`."""
        if self._port is None:
            raise RuntimeError("the scripted model is not running: enter it with `async with`")
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def journal(self) -> list[Request]:
        """Every request so far, in the order of arrival."""
        return self._journal.requests

    @property
    def requests(self) -> list[dict[str, object]]:
        """The bodies of the journal."""
        return [request.body for request in self._journal.requests]

    async def wait_for_requests(self, count: int, timeout_s: float = 10.0) -> list[Request]:
        """Wait for requests. Works from any loop or thread.

        Args:
            count: How many requests must have arrived.
            timeout_s: How long to wait.

        Returns:
            The first `count` requests.

        Raises:
            TimeoutError: Fewer requests arrived in time.
        """
        await self._journal.wait_for(count, timeout_s)
        return self.journal[:count]

    def problems(self) -> list[str]:
        """Unexpected requests and unused steps, one line each; empty if the script was followed."""
        lines = [
            f"unexpected request {request.number} ({request.api}): {request.problem}"
            for request in self.journal
            if request.unexpected
        ]
        return lines + [f"unused step: {line}" for line in self._endpoints.unused()]

    def check(self) -> None:
        """Raise `ScriptError` if there are problems."""
        if problems := self.problems():
            raise ScriptError("the script was not followed:\n  " + "\n  ".join(problems))

    async def __aenter__(self) -> Self:
        self._port = await self._server.start(self._asked_port, self._host)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._server.stop()
        self._end(raised)

    def __enter__(self) -> Self:
        started: threading.Event = threading.Event()
        failure: list[BaseException] = []
        self._thread = threading.Thread(
            target=self._run_thread, args=(started, failure), name="scripted-model", daemon=True
        )
        self._thread.start()
        started.wait()
        if failure:
            self._thread.join()
            raise failure[0]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._thread is not None and self._loop is not None and self._stopping is not None
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        self._end(raised)

    def _run_thread(self, started: threading.Event, failure: list[BaseException]) -> None:
        async def serve() -> None:
            self._loop = asyncio.get_running_loop()
            self._stopping = asyncio.Event()
            try:
                self._port = await self._server.start(self._asked_port, self._host)
            except OSError as refused:
                failure.append(refused)
                return
            finally:
                started.set()
            await self._stopping.wait()
            await self._server.stop()

        asyncio.run(serve())

    def _end(self, raised: BaseException | None) -> None:
        self._port = None
        self._journal.close()
        if self._strict and raised is None:
            self.check()

"""All commands of the box, by operation and by session."""

from __future__ import annotations

import os
import time

from sandstream_providers.box.agent import jobs, spawn, tree, wire
from sandstream_providers.box.agent.command import Command, Running
from sandstream_providers.box.agent.connection import Connection
from sandstream_providers.box.agent.killing import Killing, kill_at_once
from sandstream_providers.box.agent.loop import Loop
from sandstream_providers.box.agent.output import OutputStore
from sandstream_providers.box.agent.refused import Refused
from sandstream_providers.box.agent.waiting import Operation, Waiter

TYPE_CHECKING = False  # typing itself takes long to load
if TYPE_CHECKING:
    from typing import Any


MAX_LIVE = 64
MAX_INTERACTIONS = 10000
FIRST_SESSION = 1000
SESSIONS = 99000


class Commands:
    """Starts, finds and ends commands."""

    def __init__(self, loop: Loop, config: dict[str, Any]) -> None:
        self._loop = loop
        self._jobs = jobs.Jobs(config["jobs_fd"])
        self._env = {wire.to_bytes(k): wire.to_bytes(v) for k, v in config["env"].items()}
        self._output_bytes = int(config["output_bytes"])
        self._wall_s: float | None = config.get("wall_s")
        facts = os.fstat(config["jobs_fd"])
        self._box_mark = f"SANDSTREAM_BOX={facts.st_dev:x}-{facts.st_ino:x}".encode()
        self._commands: dict[str, Command] = {}
        self._operations: dict[str, Operation] = {}
        self._interactions: dict[str, Operation] = {}
        self._by_pid: dict[int, Command] = {}
        self._waiters: list[Waiter] = []
        self._killing: dict[str, list[Any]] = {}
        self._end_leftovers()

    # --- requests ---------------------------------------------------------------------------------

    def run(self, connection: Connection, request: dict[str, Any], stdin: bytes) -> None:
        op = request["op"]
        operation = self._operations.get(op)
        if operation is None:
            command = self._recall(op) or self._start(op, request["spec"], stdin)
            operation = self._operations[op] = Operation(command, None)
        wait_s = request.get("wait_s")
        due = None if wait_s is None else operation.command.started_at + wait_s
        self._wait(connection, request, operation, due)

    def interact(self, connection: Connection, request: dict[str, Any], data: bytes) -> None:
        op = request["op"]
        operation = self._interactions.get(op)
        if operation is None:
            command = self._with_session(request["session"])
            process = command.process
            if data and not command.over:
                if process is None or not process.stdin_open:
                    raise Refused(
                        "StdinClosed",
                        f"stdin of session {command.session} is closed",
                        session=command.session,
                    )
            operation = Operation(command, time.monotonic() + request["wait_s"])
            self._interactions[op] = operation
            if len(self._interactions) > MAX_INTERACTIONS:
                del self._interactions[next(iter(self._interactions))]
            if data and process is not None:
                process.write(data)
        self._wait(connection, request, operation, operation.due)

    def kill(self, connection: Connection, request: dict[str, Any], _payload: bytes) -> None:
        answer = {"id": request["id"], "ok": None}
        command = self._commands.get(request["op"])
        if command is None or command.family is None:
            connection.send(answer)
        else:
            self._end(command, "cancelled", lambda: connection.send(answer))

    def kill_all(self, connection: Connection, request: dict[str, Any], _payload: bytes) -> None:
        for command in self._commands.values():
            if not command.over and command.process is not None:
                command.killed = command.killed or "cancelled"
                command.process.killing = True

        def done() -> None:
            for command in list(self._commands.values()):
                if command.process is not None and not command.over:
                    command.process.killing_is_over()
            connection.send({"id": request["id"], "ok": None})

        Killing(self._loop, self._everything, done)

    def live(self) -> list[Command]:
        return [command for command in self._commands.values() if not command.over]

    def forget(self, connection: Connection, request: int | None = None) -> None:
        """The client no longer waits, or is gone."""
        for waiter in list(self._waiters):
            if waiter.connection is connection and request in (None, waiter.request):
                waiter.stop()
                self._waiters.remove(waiter)

    # --- starting ---------------------------------------------------------------------------------

    def _start(self, op: str, spec: dict[str, Any], stdin: bytes) -> Command:
        if len(self.live()) >= MAX_LIVE:
            raise Refused("LimitReached", f"{MAX_LIVE} commands are running already")
        name = jobs.folder_name(op)
        mark = b"SANDSTREAM_OP=" + wire.to_bytes(op)
        env = dict(self._env)
        env.update((wire.to_bytes(k), wire.to_bytes(v)) for k, v in spec["env"].items())
        for one in (mark, self._box_mark):
            key, _, value = one.partition(b"=")
            env[key] = value
        try:
            self._jobs.claim(name)
        except OSError as error:
            raise Refused("NoSpace", f"the command cannot be recorded: {error.strerror}") from error
        want_stdin = bool(stdin or spec["keep_stdin"])
        try:
            started = spawn.start(
                [wire.to_bytes(part) for part in spec["argv"]],
                wire.to_bytes(spec["cwd"]),
                env,
                spec["tty"],
                want_stdin,
            )
        except Refused:
            self._jobs.unclaim(name)
            raise
        command = self._new_command(op, name, self._free_session())
        command.family = tree.Family(started.pid, (mark, self._box_mark))
        command.process = Running(
            self._loop,
            command,
            started,
            lambda: self._output_came(command),
            lambda: self._command_ended(command),
        )
        self._by_pid[started.pid] = command
        self._record_start(command, spec, started.pid)
        if want_stdin or spec["tty"]:
            command.process.write(stdin, close_after=not (spec["keep_stdin"] or spec["tty"]))
        limits = [t for t in (spec["timeout_s"], self._wall_s) if t is not None]
        if limits:
            self._loop.after(min(limits), lambda: self._timed_out(command))
        return command

    def _new_command(self, op: str, name: str, session: int) -> Command:
        stores = [
            OutputStore(self._jobs.folder, f"{name}/{stream}", self._output_bytes)
            for stream in ("out", "err")
        ]
        command = Command(op, name, session, *stores)
        self._commands[op] = command
        return command

    def _record_start(self, command: Command, spec: dict[str, Any], pid: int) -> None:
        process = tree.read_process(pid)
        facts = {
            "op": command.op,
            "argv": spec["argv"],
            "cwd": spec["cwd"],
            "session": command.session,
            "pid": pid,
            "started": process.started if process is not None else 0,
        }
        try:
            self._jobs.record_start(command.name, facts)
        except OSError:
            pass  # a full disk: the claim stands, and that is what counts

    def _free_session(self) -> int:
        used = {command.session for command in self._commands.values()}
        while True:
            number = FIRST_SESSION + int.from_bytes(os.urandom(4), "big") % SESSIONS
            if number not in used:
                return number

    # --- finding ----------------------------------------------------------------------------------

    def _recall(self, op: str) -> Command | None:
        """A command of an earlier life of this agent."""
        command = self._commands.get(op)
        name = jobs.folder_name(op)
        if command is not None or not self._jobs.known(name):
            return command
        start, end = self._jobs.start(name), self._jobs.end(name)
        command = self._new_command(op, name, start.get("session", FIRST_SESSION))
        command.state = end.get("state", "lost")
        command.exit_code = end.get("exit_code")
        command.killed = end.get("killed", "")
        for store, file in ((command.stdout, "out"), (command.stderr, "err")):
            kept = self._jobs.size(f"{name}/{file}")
            store.total, store.readable = end.get(file, [kept, None])
        return command

    def _with_session(self, session: int) -> Command:
        for command in self._commands.values():
            if command.session == session and not (command.state == "exited" and command.told):
                return command
        raise Refused(
            "NoSuchSession", f"no running command has the number {session}", session=session
        )

    def _end_leftovers(self) -> None:
        """What an agent that was killed left running is lost, and must not run on unseen."""
        for name in self._jobs.names():
            start = self._jobs.start(name)
            if start and not self._jobs.end(name):
                self._recall(start["op"])
        if self._commands:
            kill_at_once(self._everything)

    # --- waiting ----------------------------------------------------------------------------------

    def _wait(
        self,
        connection: Connection,
        request: dict[str, Any],
        operation: Operation,
        due: float | None,
    ) -> None:
        waiter = Waiter(
            self._loop,
            connection,
            request["id"],
            operation,
            due,
            request.get("events_from"),
            self._answered,
        )
        self._waiters.append(waiter)
        if operation.command.over:
            waiter.answer()

    def _answered(self, waiter: Waiter) -> None:
        if waiter in self._waiters:
            self._waiters.remove(waiter)

    def _output_came(self, command: Command) -> None:
        for waiter in self._waiters:
            if waiter.operation.command is command:
                waiter.output_came()

    # --- ending -----------------------------------------------------------------------------------

    def reap(self) -> None:
        """Collect all children that ended, also those that were left to us by others."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            command = self._by_pid.pop(pid, None)
            if command is not None and command.process is not None:
                code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
                command.process.exited(code)

    def end(self, command: Command, why: str) -> None:
        """Kill its whole tree; its outcome says why."""
        self._end(command, why, lambda: None)

    def end_everything(self) -> None:
        """At once: the agent itself ends."""
        for _ in range(100):
            if not self._everything():
                break
            kill_at_once(self._everything)
            self.reap()

    def _timed_out(self, command: Command) -> None:
        if not command.over:
            self._end(command, "timeout", lambda: None)

    def _end(self, command: Command, why: str, done: Any) -> None:
        family = command.family
        assert family is not None
        if command.op in self._killing:
            self._killing[command.op].append(done)
            return
        calls = self._killing[command.op] = [done]
        process = command.process
        if process is not None and not command.over:
            command.killed = why
            process.killing = True

        def is_over() -> None:
            del self._killing[command.op]
            if process is not None and not command.over:
                process.killing_is_over()
            for call in calls:
                call()

        Killing(self._loop, lambda: family.members(tree.table(), set(self._by_pid)), is_over)

    def _everything(self) -> list[tree.Process]:
        """All processes of this box: all there are, if the agent has its own process table."""
        processes = tree.table()
        if os.getpid() == 1:
            return processes
        everything = tree.Family(-1, (self._box_mark,))
        return everything.members(processes, set())

    def _command_ended(self, command: Command) -> None:
        end = {
            "state": command.state,
            "exit_code": command.exit_code,
            "killed": command.killed,
            "out": [command.stdout.total, command.stdout.readable],
            "err": [command.stderr.total, command.stderr.readable],
        }
        try:
            self._jobs.record_end(command.name, end)
        except OSError:
            pass  # a full disk: this agent still knows; a later one will call it lost
        command.stdout.close()
        command.stderr.close()
        for waiter in list(self._waiters):
            if waiter.operation.command is command:
                waiter.answer()
        self._prune()

    def _prune(self) -> None:
        in_use = {command.name for command in self.live()}
        in_use.update(waiter.operation.command.name for waiter in self._waiters)
        old = set(self._jobs.prune(in_use))
        for op, command in list(self._commands.items()) if old else []:
            if command.name in old:
                del self._commands[op]
                self._operations.pop(op, None)

    def families(self) -> list[tuple[Command, tree.Family]]:
        return [
            (command, command.family)
            for command in self._commands.values()
            if command.family is not None
        ]

    @property
    def leaders(self) -> set[int]:
        return set(self._by_pid)

"""Requests of clients: commands are handled by the loop, file work by the workers."""

from __future__ import annotations

import threading

from sandstream_providers.box.agent.commands.box_commands import Commands
from sandstream_providers.box.agent.files import change, fill, scan, single_files
from sandstream_providers.box.agent.files.paths import Paths
from sandstream_providers.box.agent.loop import Loop
from sandstream_providers.box.agent.network.connection import Connection
from sandstream_providers.box.agent.refused import Refused, from_os_error
from sandstream_providers.box.agent.workers import Workers

TYPE_CHECKING = False  # typing itself takes long to load
if TYPE_CHECKING:
    from typing import Any, Callable, Dict

    from sandstream_providers.box.agent.commands.memory import Watch

    FileWork = Callable[[Dict[str, Any], bytes], Any]


REMEMBERED = 10000


class Effect:
    """A requested change of files. A repeated request gets the same outcome."""

    def __init__(self) -> None:
        self.outcome: dict[str, Any] | None = None
        self.waiting: list[Callable[[dict[str, Any]], None]] = []


class Server:
    """Answers requests, whichever connection they come from."""

    def __init__(self, loop: Loop, config: dict[str, Any]) -> None:
        self._loop = loop
        self.commands = Commands(loop, config)  # before there are threads: it may fork
        self._workers = Workers()
        self._memory: Watch | None = None
        if config.get("memory_bytes"):
            from sandstream_providers.box.agent.commands import memory  # not in every box

            self._memory = memory.watch(loop, self.commands, config)
        self._paths = Paths(config["root"])
        reader = single_files.Reader(self._paths)
        writer = single_files.Writer(self._paths)
        changer = change.Changer(self._paths)
        scanner = scan.Scanner(self._paths)
        self._reads: dict[str, FileWork] = {
            "read": reader.read,
            "stat": reader.stat,
            "list": reader.list,
            "scan": scanner.scan,
            "scan_next": scanner.next,
            "scan_done": scanner.done,
            "prime": scanner.prime,
        }
        self._effects: dict[str, FileWork] = {
            "make_dir": writer.make_dir,
            "remove": writer.remove,
            "move": writer.move,
            "append": writer.append,
            "clear": writer.clear,
            "change": changer.change,
            "fill": fill.Filler(self._paths).fill,
        }
        self._asked: dict[str, Effect] = {}
        self._changing = threading.Lock()
        changer.clean_up()

    def request(self, connection: Connection, request: dict[str, Any], payload: bytes) -> None:
        number = request.get("id")
        if not isinstance(number, int):
            connection.close()
            return
        try:
            self._spread(connection, request, payload)
        except Refused as refusal:
            connection.send({"id": number, "error": refusal.as_dict()})
        except Exception as error:  # noqa: BLE001 - the client is told; the agent must live on
            connection.send({"id": number, "error": _fault(error)})

    def _spread(self, connection: Connection, request: dict[str, Any], payload: bytes) -> None:
        what = request["do"]
        if what == "run":
            self.commands.run(connection, request, payload)
            if self._memory is not None:
                self._memory.look_on()
        elif what == "first_request":
            self.commands.first_request(connection, request, payload)
        elif what == "interact":
            self.commands.interact(connection, request, payload)
        elif what == "kill":
            self.commands.kill(connection, request, payload)
        elif what == "kill_all":
            self.commands.kill_all(connection, request, payload)
        elif what == "sessions":
            connection.send({"id": request["id"], "ok": len(self.commands.live())})
        elif what == "forget":
            self.commands.forget(connection, request["request"])
        elif what in self._reads:
            self._read(connection, request, payload)
        elif what in self._effects:
            self._effect(connection, request, payload)
        else:
            raise ValueError(f"this agent cannot {what!r}")

    # --- files ------------------------------------------------------------------------------------

    def _read(self, connection: Connection, request: dict[str, Any], payload: bytes) -> None:
        work = self._reads[request["do"]]

        def task() -> None:
            outcome, data = _attempt(work, request, payload)
            outcome["id"] = request["id"]
            self._loop.post(lambda: connection.send(outcome, data))

        self._workers.do(task)

    def _effect(self, connection: Connection, request: dict[str, Any], payload: bytes) -> None:
        work = self._effects[request["do"]]
        op = request["op"]
        effect = self._asked.get(op)

        def tell(outcome: dict[str, Any]) -> None:
            connection.send(dict(outcome, id=request["id"]))

        if effect is not None:
            if effect.outcome is not None:
                tell(effect.outcome)
            else:
                effect.waiting.append(tell)
            return
        effect = self._asked[op] = Effect()
        effect.waiting.append(tell)
        if len(self._asked) > REMEMBERED:
            del self._asked[next(iter(self._asked))]

        def task() -> None:
            with self._changing:
                outcome, _ = _attempt(work, request, payload)
            self._loop.post(lambda: self._effect_is_over(effect, outcome))

        self._workers.do(task)

    def _effect_is_over(self, effect: Effect, outcome: dict[str, Any]) -> None:
        effect.outcome = outcome
        for tell in effect.waiting:
            tell(outcome)
        effect.waiting.clear()


def _attempt(
    work: FileWork, request: dict[str, Any], payload: bytes
) -> tuple[dict[str, Any], bytes]:
    try:
        result = work(request, payload)
    except Refused as refusal:
        return {"error": refusal.as_dict()}, b""
    except OSError as error:
        return {
            "error": from_os_error(error, str(request.get("path", "the workspace"))).as_dict()
        }, b""
    except Exception as error:  # noqa: BLE001 - the client is told; the agent must live on
        return {"error": _fault(error)}, b""
    if isinstance(result, tuple):
        return {"ok": result[0]}, result[1]
    return {"ok": result}, b""


def _fault(error: Exception) -> dict[str, Any]:
    where = error.__traceback__
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    place = f"{where.tb_frame.f_code.co_filename}:{where.tb_lineno}" if where else "?"
    message = f"fault in the sandbox agent: {error!r} at {place}"
    return Refused("ProviderError", message).as_dict()

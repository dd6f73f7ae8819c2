"""The sandbox actor: one kind per provider, any number of replicas per node.

It takes calls from runs and operations from session objects, does each once, and publishes its one
outcome. A command belongs to the box, not to the actor: killed in the middle, the next replica
attaches to it and collects its result. Work for a sandbox of another node is passed on to it; if
that node is gone, the sandbox is restored here or said to be lost.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
from msgspec import Raw
from sandstream_bus.bus import Bus
from sandstream_bus.consumer import Delivery
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.errors import PayloadTooLarge, UndecodableMessage
from sandstream_bus.headers import ACTION, OPERATION
from sandstream_bus.messages import CallFinished, CallRequested, ErrorInfo
from sandstream_bus.runtime import Worker
from sandstream_bus.sandbox_messages import SandboxFailure, SandboxReply, SandboxRequest
from sandstream_bus.sandboxes import OWN_NODE as OWN_NODE
from sandstream_bus.sandboxes import SandboxMovedOn, ttl_of
from sandstream_bus.subjects import RunId, check_token
from sandstream_bus.topology import ConsumerSpec
from sandstream_providers.interface import Provider
from sandstream_workspaces.store import WorkspaceStore

from sandstream_actors.cancellations import Cancellations
from sandstream_actors.harness.parked_runs import end_parked_run
from sandstream_actors.run_headers import answering
from sandstream_actors.run_state import RunState
from sandstream_actors.sandbox.calls import RunCalls
from sandstream_actors.sandbox.failures import Elsewhere, failure_of
from sandstream_actors.sandbox.lifecycle import Lifecycle
from sandstream_actors.sandbox.nodes import NodeWatch
from sandstream_actors.sandbox.operations import Tools
from sandstream_actors.sandbox.reaper import GRACE_S, Reaper
from sandstream_actors.sandbox.requests import Requests
from sandstream_actors.sandbox.specs import Policy

logger = logging.getLogger(__name__)
T = TypeVar("T")

NODE_IDLE_S = 7 * 86_400.0
OWN_IDLE_S = 3600.0
"""The consumer of a node that nobody has seen for so long is deleted."""
MAY_HAVE_BEGUN = "Sandstream-May-Have-Begun"
"""On work that is passed on and was delivered before: it is new only for its new consumer."""
_TRIES = 5


class SandboxActor:
    """One replica of one provider's actor on one node."""

    def __init__(
        self,
        bus: Bus,
        provider: Provider,
        *,
        node: str,
        max_in_flight: int = 256,
        reap_every_s: float = 60.0,
        reap_grace_s: float = GRACE_S,
        watch_every_s: float = 5.0,
        policy: Policy | None = None,
    ) -> None:
        self.node = check_token(node, "the node")
        self.provider = provider
        self._bus = bus
        self._max_in_flight = max_in_flight
        self._reap_every_s = reap_every_s
        self._reap_grace_s = reap_grace_s
        self._watch_every_s = watch_every_s
        self._policy = policy
        self._cancellations = Cancellations(bus)
        self.store = WorkspaceStore(bus)
        self._workers: list[Worker] = []
        self._adopted: set[str] = set()
        self._loops: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Find out what can be done here, then take work."""
        await self.provider.check()
        bus = self._bus
        owner = await installation_of(bus)
        self.lifecycle = Lifecycle(
            bus, self.provider, self.store, node=self.node, owner=owner, policy=self._policy
        )
        await self.lifecycle.start()
        tools = Tools(self.lifecycle, self.provider, self.store)
        self._calls = RunCalls(bus, tools)
        self._requests = Requests(bus, tools)
        await self._cancellations.start()
        is_own = self.node.startswith(OWN_NODE)
        state = await bus.topology.stream_state(bus.connection, bus.topology.log)
        # nothing older can be for this node, unless its consumer is there and knows its place
        own = self.consumer_of(self.node, start_sequence=state["last_seq"] + 1)
        specs = [own] if is_own else [self._shared(), own]
        self._workers = [self.worker_for(spec) for spec in specs]
        await asyncio.gather(*(worker.start() for worker in self._workers))
        reaper = Reaper(
            bus,
            self.lifecycle,
            self.provider,
            every_s=self._reap_every_s,
            grace_s=self._reap_grace_s,
        )
        self._loops = [asyncio.ensure_future(reaper.run())]
        if not is_own:
            watch = NodeWatch(bus, self, every_s=self._watch_every_s)
            self._loops.append(asyncio.ensure_future(watch.run()))

    async def stop(self, grace_s: float = 10.0) -> None:
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        await self._cancellations.stop()
        await asyncio.gather(*(worker.stop(grace_s) for worker in self._workers))
        await self.lifecycle.stop()
        await self.provider.close()

    # --- consumers -----------------------------------------------------------------------------

    def _shared(self) -> ConsumerSpec:
        """Work that any node may take."""
        prefix, name = self._bus.subjects.prefix, self.provider.name
        return ConsumerSpec(
            name=f"sandbox-{name}",
            filters=[f"{prefix}.run.*.sandbox.{name}", f"{prefix}.sandbox.*.op.{name}"],
        )

    def consumer_of(self, node: str, *, start_sequence: int | None = None) -> ConsumerSpec:
        prefix, name = self._bus.subjects.prefix, self.provider.name
        return ConsumerSpec(
            name=f"sandbox-{name}-{node}",
            filters=[
                f"{prefix}.run.*.sandbox.{name}.{node}",
                f"{prefix}.sandbox.*.op.{name}.{node}",
            ],
            start_sequence=start_sequence,
            inactive_s=OWN_IDLE_S if node.startswith(OWN_NODE) else NODE_IDLE_S,
        )

    def worker_for(self, spec: ConsumerSpec, *, announce: bool = True) -> Worker:
        return Worker(
            self._bus,
            spec,
            self._on_delivery,
            max_in_flight=self._max_in_flight,
            on_parked=self._on_parked,
            announce=announce,
        )

    async def adopt(self, node: str, *, start_sequence: int) -> None:
        """Serve another node's work as well, because nobody else will.

        ``start_sequence``: if its consumer is gone, work before this is of no use any more.
        """
        if node == self.node or node in self._adopted or await self.lifecycle.is_served(node):
            return
        if node not in self._adopted:  # nor meanwhile
            self._adopted.add(node)
            spec = self.consumer_of(node, start_sequence=start_sequence)
            worker = self.worker_for(spec, announce=False)
            await worker.start()
            self._workers.append(worker)

    # --- work ----------------------------------------------------------------------------------

    async def _on_delivery(self, delivery: Delivery) -> None:
        crashpoint("sandbox.received")
        if delivery.subject.startswith(f"{self._bus.subjects.prefix}.run."):
            await self._on_call(delivery)
        else:
            await self._on_request(delivery)

    async def _on_call(self, delivery: Delivery) -> None:
        call = await self._bus.codec.run_event(delivery.data)
        if not isinstance(call, CallRequested) or not call.sandbox:
            raise UndecodableMessage(f"{delivery.subject} carries no call for a sandbox")
        check_token(call.sandbox, "the sandbox")
        check_token(call.reply_pool, "the pool")
        run = self._bus.subjects.parse_run(delivery.subject).run
        if not delivery.fresh and await self._is_settled(run, call):
            return
        began = time.monotonic()
        try:
            finished = await self._until_cancelled(run, call, delivery)
        except Elsewhere as elsewhere:
            subject = self._bus.subjects.run_sandbox(run, self.provider.name, elsewhere.node)
            await self._pass_on(subject, delivery)
            return
        if finished is None:
            return
        duration_ms = round((time.monotonic() - began) * 1000)
        finished = msgspec.structs.replace(finished, duration_ms=duration_ms)
        crashpoint("sandbox.before_result")
        try:
            await self._send_result(run, call, finished, delivery)
        except PayloadTooLarge as error:
            text = f"The result is too large: {error}"
            finished = CallFinished(
                call=call.call,
                kind=call.kind,
                turn=call.turn,
                output=Raw(msgspec.json.encode(text)),
                error=ErrorInfo(code=error.code, message=text),
            )
            await self._send_result(run, call, finished, delivery)
        crashpoint("sandbox.after_result")

    async def _send_result(
        self, run: RunId, call: CallRequested, finished: CallFinished, delivery: Delivery
    ) -> None:
        await self._bus.work_log.send(
            self._bus.subjects.result(run, call.reply_pool),
            finished,
            msg_id=f"{run}:{call.call}:result:{delivery.sequence}",
            headers=answering(delivery),
        )

    async def _until_cancelled(
        self, run: RunId, call: CallRequested, delivery: Delivery
    ) -> CallFinished | None:
        """Do it; None if the run was cancelled meanwhile: then the command is killed."""
        sequence, fresh = delivery.sequence, _is_fresh(delivery)
        work = self._again(lambda: self._calls.do(run, call, sequence=sequence, fresh=fresh))
        task = asyncio.ensure_future(work)
        if call.kind == "close":
            return await task
        try:
            with self._cancellations.watching(run, task):
                return await task
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if (current is not None and current.cancelling()) or not task.cancelling():
                raise
            await self._again(lambda: self._calls.give_up(run, call))
            return None

    async def _on_request(self, delivery: Delivery) -> None:
        request = await self._bus.codec.sandbox_request(delivery.data)
        sandbox = self._bus.subjects.parse_sandbox(delivery.subject).sandbox
        for value, what in ((sandbox, "the sandbox"), (request.op, "the operation")):
            check_token(value, what)
        check_token(request.run or sandbox, "the run")
        if not delivery.fresh and await self._bus.sandboxes.replied(sandbox, request.op):
            return
        began = time.monotonic()
        try:
            reply = await self._reply_to(sandbox, request, delivery)
        except Elsewhere as elsewhere:
            subject = self._bus.subjects.sandbox_op(sandbox, self.provider.name, elsewhere.node)
            await self._pass_on(subject, delivery)
            return
        duration_ms = round((time.monotonic() - began) * 1000)
        crashpoint("sandbox.before_reply")
        reply = msgspec.structs.replace(reply, duration_ms=duration_ms)
        headers = answering(delivery) | {ACTION: str(request.action.__struct_config__.tag)}
        try:
            await self._bus.sandboxes.reply(sandbox, reply, ttl_s=ttl_of(request), headers=headers)
        except PayloadTooLarge as error:
            failure = SandboxFailure(code=error.code, message=f"The result: {error}")
            reply = SandboxReply(op=reply.op, error=failure)
            await self._bus.sandboxes.reply(sandbox, reply, ttl_s=ttl_of(request), headers=headers)
        crashpoint("sandbox.after_reply")

    async def _reply_to(
        self, sandbox: str, request: SandboxRequest, delivery: Delivery
    ) -> SandboxReply:
        sequence, fresh = delivery.sequence, _is_fresh(delivery)
        try:
            result = await self._again(
                lambda: self._requests.do(sandbox, request, sequence=sequence, fresh=fresh)
            )
        except Elsewhere:
            raise
        except Exception as error:
            failure = failure_of(error, str(request.action.__struct_config__.tag))
            if failure is None:
                raise
            return SandboxReply(op=request.op, error=failure)
        return SandboxReply(op=request.op, result=Raw(msgspec.json.encode(result)))

    async def _again(self, work: Callable[[], Awaitable[T]]) -> T:
        """A sandbox whose log went on under us is looked at again."""
        for _ in range(_TRIES):
            try:
                return await work()
            except SandboxMovedOn:
                await asyncio.sleep(0.05)
        return await work()

    async def _pass_on(self, subject: str, delivery: Delivery) -> None:
        """To the node that has the sandbox. The same work, so the same id."""
        headers = {
            name: value
            for name, value in delivery.headers.items()
            if not name.startswith("Nats-") or name == "Nats-TTL"
        }
        if not delivery.fresh:
            headers[MAY_HAVE_BEGUN] = "1"
        await self._bus.connection.publish(
            subject,
            delivery.data,
            msg_id=f"{subject}:{delivery.sequence}",
            headers=headers,
            budget_s=None,
        )

    async def _is_settled(self, run: RunId, call: CallRequested) -> bool:
        """Has the call a result, or is it of no use any more?"""
        state = RunState.of(run, await self._bus.log.read(run))
        if call.kind == "close":
            return False  # done twice it does nothing, and a run that ended still needs it
        return state.done is not None or call.turn < state.turn or call.call in state.results

    async def _on_parked(self, delivery: Delivery, reason: str) -> None:
        if delivery.subject.startswith(f"{self._bus.subjects.prefix}.run."):
            run = self._bus.subjects.parse_run(delivery.subject).run
            await end_parked_run(self._bus, run, reason)
            return
        op = delivery.headers.get(OPERATION) or _operation_of(delivery.data)
        if op:  # its caller must not wait for ever
            sandbox = self._bus.subjects.parse_sandbox(delivery.subject).sandbox
            text = f"the request could not be handled and was parked: {reason}"
            failure = SandboxFailure(code="parked", message=text)
            await self._bus.sandboxes.reply(sandbox, SandboxReply(op=op, error=failure))


class _Peek(msgspec.Struct):
    op: str = ""


def _operation_of(request: bytes) -> str:
    """The operation of a request that is otherwise unreadable; empty if it cannot be known."""
    try:
        return msgspec.json.decode(request, type=_Peek).op
    except msgspec.DecodeError:
        return ""


def _is_fresh(delivery: Delivery) -> bool:
    """Certainly nobody has begun it, here or on another node."""
    return delivery.fresh and MAY_HAVE_BEGUN not in delivery.headers


async def installation_of(bus: Bus) -> str:
    """What tells this installation's boxes from those of another one on the same machine."""
    created = await bus.topology.created(bus.connection, bus.topology.log)
    return f"{bus.subjects.prefix}:{created}"

"""The sandbox actor: one kind per provider, any number of replicas per node.

It takes calls from runs and operations from session objects, does each once, and publishes its
single outcome. A command belongs to the box, not to the actor: if the actor is killed, the next
replica attaches to the command and collects its result. Work for a sandbox of another node is
passed on to that node; if the node is gone, the sandbox is restored here or reported as lost.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

import msgspec
from msgspec import Raw
from sandstream_bus.bus import Bus
from sandstream_bus.counts import numbered
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.errors import Drop, PayloadTooLarge, UndecodableMessage
from sandstream_bus.logs.codec import NOT_JSON
from sandstream_bus.logs.sandboxes import OWN_NODE as OWN_NODE
from sandstream_bus.logs.sandboxes import SandboxMovedOn
from sandstream_bus.nats.consumer import Delivery
from sandstream_bus.nats.log_guard import LogChange
from sandstream_bus.nats.topology import ConsumerSpec
from sandstream_bus.wire.headers import ACTION, OPERATION
from sandstream_bus.wire.messages import CallFinished, CallRequested
from sandstream_bus.wire.sandboxes import SandboxFailure, SandboxReply, SandboxRequest
from sandstream_bus.wire.subjects import RunId, check_token, is_token
from sandstream_providers.addresses import Resolve, resolve_host
from sandstream_providers.interface import Leasing, Provider
from sandstream_workspaces.store import WorkspaceStore

from sandstream_actors.base import GRACE_S as STOP_S
from sandstream_actors.base import Actor
from sandstream_actors.run.cancellations import RunCancelled
from sandstream_actors.run.headers import answering
from sandstream_actors.sandbox.calls import RunCalls
from sandstream_actors.sandbox.failures import Elsewhere, Settled, failure_of
from sandstream_actors.sandbox.lifecycle import Lifecycle
from sandstream_actors.sandbox.nodes import NodeWatch
from sandstream_actors.sandbox.operations import Tools
from sandstream_actors.sandbox.policy import Policy
from sandstream_actors.sandbox.reaper import GRACE_S, Reaper
from sandstream_actors.sandbox.requests import Requests
from sandstream_actors.sandbox.sources import Sources

logger = logging.getLogger(__name__)
T = TypeVar("T")

NODE_IDLE_S = 7 * 86_400.0
OWN_IDLE_S = 3600.0
"""The consumer of a node that was absent for this time is deleted."""
MAY_HAVE_BEGUN = "Sandstream-May-Have-Begun"
"""Marks forwarded work that was delivered before: it is new only to its new consumer."""
_TRIES = 5


class SandboxActor(Actor):
    """One replica of one provider's actor on one node."""

    hears_cancellations = True

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
        resolve: Resolve = resolve_host,
        owns_boxes: bool = True,
    ) -> None:
        """``owns_boxes``: only this node can reach its boxes. False: every node can."""
        super().__init__("sandbox", bus=bus, max_in_flight=max_in_flight)
        self.node = check_token(node, "the node")
        self.provider = provider
        self._reap_every_s = reap_every_s
        self._reap_grace_s = reap_grace_s
        self._watch_every_s = watch_every_s
        self._owns_boxes = owns_boxes
        self._sources = Sources(policy=policy or Policy(), resolve=resolve)
        self.store = WorkspaceStore(bus)
        self._adopted: set[str] = set()
        self._forget_change: Callable[[], None] = lambda: None

    async def prepare(self) -> None:
        """Check the provider, and set up consumers and background work."""
        await self.provider.check()
        bus = self._bus
        owner = await installation_of(bus)
        self.lifecycle = Lifecycle(
            bus,
            self.provider,
            self.store,
            node=self.node,
            owner=owner,
            sources=self._sources,
            owns_boxes=self._owns_boxes,
        )
        await self.lifecycle.start()
        tools = Tools(self.lifecycle, self.provider, self.store)
        self._forget_change = bus.guard.on_change(self._on_lost_log)
        self._calls = RunCalls(bus, tools)
        self._requests = Requests(bus, tools)
        is_own = self.node.startswith(OWN_NODE)
        state = await bus.topology.stream_state(bus.connection, bus.topology.log)
        # no older message can be for this node, unless its consumer exists and knows its position
        own = self.consumer_of(self.node, start_sequence=state["last_seq"] + 1)
        if not is_own:
            self.reads(self._shared())
        self.reads(own)
        reaper = Reaper(
            bus,
            self.lifecycle,
            self.provider,
            every_s=self._reap_every_s,
            grace_s=self._reap_grace_s,
        )
        self.works_on(reaper.run)
        if not is_own:
            self.works_on(NodeWatch(bus, self, every_s=self._watch_every_s).run)

    async def stop(self, grace_s: float = STOP_S, *, ends: Collection[str] = ()) -> None:
        """Take no more work. ``ends``: sandboxes whose boxes end now, with their commands."""
        self._forget_change()
        await super().stop(grace_s)
        await self.lifecycle.stop()
        for info in await self.provider.list_owned(self.lifecycle.owner) if ends else ():
            # the log cannot be asked: an event loop that ends has ended the connection first
            if info.labels.get("sandbox") in ends:
                await self.provider.stop(info.key)
        if self.node.startswith(OWN_NODE) and isinstance(self.provider, Leasing):
            await self.provider.stop_idle()  # no other process works in a program's sandboxes
        await self.provider.close()

    async def _on_lost_log(self, change: LogChange) -> None:
        """Forget all sandboxes: the log that described them is lost. Their boxes are left alone."""
        self.lifecycle.forget_all()
        if change.what == "older copy":
            return
        left = await self.provider.list_owned(self.lifecycle.owner)
        self.lifecycle.owner = await installation_of(self._bus)
        if left:
            logger.warning(
                "%s of the lost log left on node %s will not be used again",
                numbered(len(left), "box", "boxes"),
                self.node,
                extra={"boxes": ", ".join(sorted(it.key for it in left))},
            )

    # --- consumers -----------------------------------------------------------------------------

    def _shared(self) -> ConsumerSpec:
        """Work that any node may take."""
        name = self.provider.name
        filters = self._bus.subjects.sandbox_work(name)
        return ConsumerSpec(name=f"sandbox-{name}", filters=filters)

    def consumer_of(self, node: str, *, start_sequence: int | None = None) -> ConsumerSpec:
        name = self.provider.name
        return ConsumerSpec(
            name=f"sandbox-{name}-{node}",
            filters=self._bus.subjects.sandbox_work(name, node),
            start_sequence=start_sequence,
            inactive_s=OWN_IDLE_S if node.startswith(OWN_NODE) else NODE_IDLE_S,
        )

    async def adopt(self, node: str, *, start_sequence: int) -> None:
        """Serve another node's work too, because that node is dead.

        ``start_sequence``: if its consumer is gone, work before this sequence is useless.
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

    async def handle(self, delivery: Delivery) -> None:
        crashpoint("sandbox.received")
        if self._bus.subjects.split(delivery.subject).family == "run":
            await self._on_call(delivery)
        else:
            await self._on_request(delivery)

    async def _on_call(self, delivery: Delivery) -> None:
        call = await self._bus.codec.run_event(delivery.data)
        if not isinstance(call, CallRequested) or not call.sandbox:
            raise UndecodableMessage(f"{delivery.subject} carries no call for a sandbox")
        check_token(call.sandbox, "the sandbox")
        check_token(call.reply_pool, "the pool")
        run = self._bus.subjects.delivered_run(delivery.subject).run
        if not await self._bus.log.has_begun(run, delivery.headers):
            raise Drop(f"the run {run} has not begun")
        if not delivery.fresh and await self._calls.is_settled(run, call):
            return
        began = time.monotonic()
        try:
            finished = await self._until_cancelled(run, call, delivery)
        except Settled:
            return
        except Elsewhere as elsewhere:
            subject = self._bus.subjects.run_sandbox(run, self.provider.name, elsewhere.node)
            await self._pass_on(subject, delivery)
            return
        if finished is None:
            return
        duration_ms = round((time.monotonic() - began) * 1000)
        finished = msgspec.structs.replace(finished, duration_ms=duration_ms)
        crashpoint("sandbox.before_result")
        await self.answer(run, call, finished, delivery)
        crashpoint("sandbox.after_result")

    async def _until_cancelled(
        self, run: RunId, call: CallRequested, delivery: Delivery
    ) -> CallFinished | None:
        """Do the call; None if the run was cancelled meanwhile: then the command is killed."""
        sequence, time_ns, fresh = delivery.sequence, delivery.time_ns, _is_fresh(delivery)
        await self._cancellations.recheck(run)
        work = self._again(
            lambda: self._calls.do(run, call, sequence=sequence, fresh=fresh, time_ns=time_ns)
        )
        if call.traits.closes_sandbox:
            return await work
        try:
            return await self._cancellations.guard(run, work)
        except RunCancelled:
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
            await self._bus.sandboxes.reply(sandbox, reply, headers=headers)
        except PayloadTooLarge as error:
            failure = SandboxFailure(code=error.code, message=f"The result: {error}")
            reply = SandboxReply(op=reply.op, error=failure)
            await self._bus.sandboxes.reply(sandbox, reply, headers=headers)
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
        """Repeat the work if another process wrote to the sandbox's log first."""
        for _ in range(_TRIES):
            try:
                return await work()
            except SandboxMovedOn:
                await asyncio.sleep(0.05)
        return await work()

    async def _pass_on(self, subject: str, delivery: Delivery) -> None:
        """To the node that has the sandbox. The same work, so the same id."""
        headers = {
            name: value for name, value in delivery.headers.items() if not name.startswith("Nats-")
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

    async def on_parked(self, delivery: Delivery, reason: str) -> None:
        if self._bus.subjects.split(delivery.subject).family == "run":
            await self.end_run_of(delivery, reason)
            return
        op = delivery.headers.get(OPERATION) or _operation_of(delivery.data)
        sandbox = self._bus.subjects.parse_sandbox(delivery.subject).sandbox
        if is_token(op) and is_token(sandbox):  # its caller must not wait forever
            text = f"the request could not be handled and was parked: {reason}"
            failure = SandboxFailure(code="parked", message=text)
            await self._bus.sandboxes.reply(sandbox, SandboxReply(op=op, error=failure))


class _Peek(msgspec.Struct):
    op: str = ""


def _operation_of(request: bytes) -> str:
    """The operation of an otherwise unreadable request; empty if it is unknown."""
    try:
        return msgspec.json.decode(request, type=_Peek).op
    except NOT_JSON:
        return ""


def _is_fresh(delivery: Delivery) -> bool:
    """Is it certain that no node has begun this work?"""
    return delivery.fresh and MAY_HAVE_BEGUN not in delivery.headers


async def installation_of(bus: Bus) -> str:
    """An id that distinguishes this installation's boxes from those of others on this machine."""
    created = await bus.topology.created(bus.connection, bus.topology.log)
    return f"{bus.subjects.prefix}:{created}"

"""Phase 2: merge raw memories into the handbook.

A scope has at most one consolidation at a time, because the state that names it is written under
compare-and-set. The consolidation works on a copy in its own sandbox. Its result is checked, merged
with changes made by others in the meantime, and then replaces the memory's files in one step.
"""

from __future__ import annotations

import logging
from typing import Final

import msgspec
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.wire.memories import (
    ExtractRequested,
    MemoryChanged,
    MemoryFailed,
    MemoryState,
    Merge,
    MergeRequested,
    Rollout,
    Tree,
)
from sandstream_bus.wire.memory_specs import MemoryPart
from sandstream_bus.wire.messages import RunDone
from sandstream_bus.wire.subjects import sandbox_of
from sandstream_memory.phase_two import AGENT_NAME, workspace_files

from sandstream_actors.memory.acceptance import Refused, accepted_state, result_of
from sandstream_actors.memory.context import Means
from sandstream_actors.memory.outbox import (
    ask_extraction,
    ask_later,
    ask_merge,
    cancel_run,
    go_on,
    sync_workspaces,
    tell,
)
from sandstream_actors.memory.phase_runs import HostGone, start_consolidation
from sandstream_actors.memory.phases import (
    GivenUp,
    condition_of,
    leave,
    phase_run,
    problem_of,
    was_begun,
    watch_again,
)
from sandstream_actors.memory.scope.files import change, load, now
from sandstream_actors.memory.scope.pending_work import (
    AGAIN,
    CANCELLED,
    has_given_up,
    is_extracting,
    is_held_up,
    is_pending,
    selected_by,
    selection_of,
    unmerged,
)

logger = logging.getLogger(__name__)

_INSISTING: Final = frozenset({"asked", "closed", "removed", AGAIN})
"""Reasons that are remembered until a consolidation is possible."""
_BY_ITSELF: Final = frozenset({"batch", "eager", "quiet"})
"""Reasons that recur with the next extraction, so they need not be remembered."""


class Consolidations:
    def __init__(self, means: Means) -> None:
        self._means = means
        self._bus = means.bus

    # --- beginning -----------------------------------------------------------------------------

    async def begin(
        self, scope: str, request: MergeRequested, sequence: int, *, is_redriven: bool
    ) -> None:
        """Start a consolidation if there is something to consolidate and none is running."""
        run = phase_run("merge", scope, sequence)
        attempt = 1 if is_redriven else request.attempt
        if attempt > self._means.attempts:
            state = (await self._bus.memories.read(scope)).state
            raise GivenUp(
                f"consolidation failed {self._means.attempts} times, at last: {state.merge_problem}"
            )

        async def decide(state: MemoryState) -> MemoryState | None:
            new = await self._begun(state, request, run, attempt)
            return None if new == state else new

        state = await change(self._bus, scope, decide)
        if request.reason in _INSISTING:
            await self._extract_first(state, cause=f"merge:{sequence}")
        await self._launch(state, run)

    async def _begun(
        self, state: MemoryState, request: MergeRequested, run: str, attempt: int
    ) -> MemoryState:
        reason = request.reason
        insists = reason in _INSISTING
        if insists:
            state = _without_cancelled(state)
        if state.merging is not None:
            is_ours = state.merging.run == run
            return state if is_ours or not insists else _replace(state, wanted=reason)
        is_retry = attempt > 1
        if is_held_up(state) and reason != "batch" and not is_retry:
            return _replace(state, wanted=reason) if insists else state
        if is_retry and state.merge_attempt != attempt - 1:
            return state  # another process has done it, or gave up
        if reason in _BY_ITSELF and state.merge_attempt:
            return state  # a retry is already scheduled
        selection = selection_of(state)
        has_something = selection.removed or unmerged(state, selection)
        if not has_something and not (reason == AGAIN and selection.selected):
            # the request may have overtaken the intake of a run that ended before it
            wanted = reason if reason in ("asked", "closed") else ""
            return _replace(state, wanted=wanted, merge_attempt=0, merge_problem="")
        if await was_begun(self._bus, run):
            return state
        merge = Merge(
            number=state.merges + 1,
            run=run,
            sandbox=sandbox_of(run, AGENT_NAME),
            base=await self._bus.memories.put_tree(state.scope, _copied(state)),
            selected=selection.selected,
            removed=selection.removed,
            attempt=attempt,
            reason=reason,
        )
        wanted = ""
        if is_extracting(state):  # not everything is merged yet: remember an insisting reason
            wanted = ("asked" if reason == AGAIN else reason) if insists else state.wanted
        return _replace(state, merging=merge, wanted=wanted)

    async def _extract_first(self, state: MemoryState, *, cause: str) -> None:
        """Request pending extractions, also cancelled ones: the caller wants everything."""
        for rollout in state.rollouts.values():
            if is_pending(rollout) and not rollout.extracting and not rollout.attempt:
                request = ExtractRequested(rollout=rollout.id, runs=len(rollout.runs))
                await ask_extraction(self._bus, state.scope, request, cause=cause)

    async def watch(self, scope: str, request: MergeRequested, sequence: int) -> None:
        """Check that a run is still being worked on; if not, replace it by a new one."""
        run = phase_run("merge", scope, sequence)
        state = (await self._bus.memories.read(scope)).state
        merge = state.merging
        if merge is None or merge.run not in (request.watches, run):
            return
        if merge.run != run:
            condition = await condition_of(self._bus, request.watches)
            if condition.done is not None:  # the end event may not name the phase
                part = MemoryPart(
                    scope=scope, step="merge", id=str(merge.number), attempt=merge.attempt
                )
                await self.finish(part, request.watches, condition.done)
                return
            if condition.is_ == "alive":
                await watch_again(self._means, scope, request, cause=f"watch:{sequence}")
                return
            await cancel_run(
                self._bus, request.watches, "its process is gone; the phase starts again"
            )

        async def decide(state: MemoryState) -> MemoryState | None:
            if state.merging is None or state.merging.run != request.watches:
                return None
            sandbox = sandbox_of(run, AGENT_NAME)
            return _replace(state, merging=_replace(state.merging, run=run, sandbox=sandbox))

        changed = await change(self._bus, scope, decide)
        await leave(self._bus, request.watches)
        await self._launch(changed, run)

    async def _launch(self, state: MemoryState, run: str) -> None:
        merge = state.merging
        if merge is None or merge.run != run:
            return
        selection = selected_by(state, merge)
        tree = await self._bus.memories.get_tree(state.scope, merge.base)
        files = workspace_files(
            await load(self._bus, state.scope, tree), selection, state.rollouts, now()
        )
        try:
            await start_consolidation(self._means, state, merge, selection, files)
        except HostGone as error:
            await self._fail(state.scope, run, merge.attempt, str(error))
            return
        watched = MergeRequested(reason=merge.reason, attempt=merge.attempt, watches=run)
        await watch_again(self._means, state.scope, watched, cause=run)

    # --- ending --------------------------------------------------------------------------------

    async def finish(self, part: MemoryPart, run: str, done: RunDone) -> None:
        """Handle the end of a consolidation's run."""
        problem = problem_of(done)
        state = (await self._bus.memories.read(part.scope)).state
        merge = state.merging
        if merge is not None and merge.run == run and not problem:
            try:
                state = await self._accept(state, merge)
            except Refused as error:
                problem = str(error)
        if problem:
            await self._fail(part.scope, run, part.attempt, problem)
            return
        await self._announce(state, run)

    async def _accept(self, state: MemoryState, merge: Merge) -> MemoryState:
        """Make the result of a consolidation the scope's, or raise :class:`Refused`."""
        result = await result_of(self._means, state, merge)

        async def decide(state: MemoryState) -> MemoryState | None:
            if state.merging is None or state.merging.run != merge.run:
                return None
            return await accepted_state(self._means, state, state.merging, result)

        crashpoint("memory.before_merged")
        state = await change(self._bus, state.scope, decide)
        crashpoint("memory.after_merged")
        return state

    async def _announce(self, state: MemoryState, run: str) -> None:
        """Send what follows from a consolidation that is in the history."""
        revision = next((it for it in state.history if it.by == run), None)
        if revision is None:
            return  # not accepted: it was removed or replaced
        changed = MemoryChanged(revision=revision.number, kind="merge", runs=revision.runs)
        await tell(self._bus, state.scope, changed, cause=run)
        await sync_workspaces(self._bus, state)
        await go_on(self._bus, state, cause=run)

    async def _fail(self, scope: str, run: str, attempt: int, problem: str) -> None:
        """Record the failure and schedule a retry, unless it was the last attempt or a cancel."""
        is_last = attempt >= self._means.attempts
        is_stopped = problem.startswith(CANCELLED)

        async def decide(state: MemoryState) -> MemoryState | None:
            if state.merging is None or state.merging.run != run:
                return None
            left = 0 if is_stopped else attempt
            return _replace(state, merging=None, merge_attempt=left, merge_problem=problem)

        state = await change(self._bus, scope, decide)
        crashpoint("memory.after_failed")
        if state.merging is not None or state.merge_problem != problem:
            return
        failed = MemoryFailed(
            step="merge",
            attempt=attempt,
            error=problem,
            run=run,
            is_final=is_last or is_stopped,
        )
        await tell(self._bus, scope, failed, cause=run)
        if is_stopped:
            return  # the next trigger starts it again
        if is_last:  # one attempt too many: it will be parked
            await ask_merge(self._bus, scope, "retry", cause=run, attempt=attempt + 1)
        else:
            again = MergeRequested(reason="retry", attempt=attempt + 1)
            delay_s = self._means.backoff_s[attempt - 1]
            await ask_later(self._bus, scope, "merge", again, cause=run, delay_s=delay_s)

    async def give_up(self, scope: str, request: MergeRequested, sequence: int, why: str) -> None:
        """The request was parked: clear its running consolidation."""
        run = phase_run("merge", scope, sequence)

        async def decide(state: MemoryState) -> MemoryState | None:
            if state.merging is None and state.merge_attempt < self._means.attempts:
                return None
            if state.merging is not None and state.merging.run != run:
                return None
            problem = state.merge_problem or why
            return _replace(state, merging=None, merge_attempt=0, merge_problem=problem)

        await change(self._bus, scope, decide)


def _copied(state: MemoryState) -> Tree:
    """The part of the memory that a consolidation sees: everything except the transcripts."""
    return {path: ref for path, ref in state.tree.items() if not path.startswith("sessions/")}


def _without_cancelled(state: MemoryState) -> MemoryState:
    """Allow cancelled extractions to start again."""
    rollouts: dict[str, Rollout] = {}
    for id, it in state.rollouts.items():
        was_stopped = has_given_up(it) and it.problem.startswith(CANCELLED)
        rollouts[id] = msgspec.structs.replace(it, problem="") if was_stopped else it
    return _replace(state, rollouts=rollouts)


_replace = msgspec.structs.replace

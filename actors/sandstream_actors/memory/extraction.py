"""Phase 1: extract what is worth remembering from a rollout's transcript.

A rollout has at most one extraction at a time; runs that are added meanwhile are extracted
afterwards. The id of an extraction's run is derived from the sequence of its request, so that a
redelivered request finds its own run.
"""

from __future__ import annotations

import msgspec
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.wire.memories import (
    ExtractRequested,
    MemoryChanged,
    MemoryFailed,
    MemoryState,
    Rollout,
)
from sandstream_bus.wire.memory_specs import MemoryPart
from sandstream_bus.wire.messages import RunDone
from sandstream_memory.layout import raw_path, rollout_path, summary_path
from sandstream_memory.phase_one import (
    Extraction,
    InvalidExtraction,
    parse_output,
    raw_memory_file,
    summary_file,
    with_own_file,
)

from sandstream_actors.memory.context import Means
from sandstream_actors.memory.outbox import (
    ask_extraction,
    ask_later,
    cancel_run,
    digest_of,
    go_on,
    tell,
)
from sandstream_actors.memory.phase_runs import HostGone, start_extraction
from sandstream_actors.memory.phases import (
    GivenUp,
    condition_of,
    leave,
    phase_run,
    problem_of,
    was_begun,
    watch_again,
)
from sandstream_actors.memory.scope.files import change, load_one, with_files, within_bounds
from sandstream_actors.memory.scope.pending_work import CANCELLED, is_pending

GONE = "its transcript is gone from the store"


class Extractions:
    def __init__(self, means: Means) -> None:
        self._means = means
        self._bus = means.bus

    # --- beginning -----------------------------------------------------------------------------

    async def begin(
        self, scope: str, request: ExtractRequested, sequence: int, *, is_redriven: bool
    ) -> None:
        """Start the requested extraction, unless it was done or another one is running."""
        run = phase_run("extract", scope, sequence)
        attempt = 1 if is_redriven else request.attempt
        if attempt > self._means.attempts:
            state = (await self._bus.memories.read(scope)).state
            rollout = state.rollouts.get(request.rollout)
            if rollout is not None and rollout.problem:
                raise GivenUp(
                    f"extraction of {request.rollout!r} failed {self._means.attempts} times, at "
                    f"last: {rollout.problem}"
                )
            return

        async def decide(state: MemoryState) -> MemoryState | None:
            rollout = state.rollouts.get(request.rollout)
            if rollout is None or rollout.extracted >= request.runs or rollout.extracting:
                return None
            if await was_begun(self._bus, run):
                return None
            return _with(state, rollout, extracting=run, attempt=attempt, is_slow=False)

        await self._launch(await change(self._bus, scope, decide), request.rollout, run)

    async def watch(self, scope: str, request: ExtractRequested, sequence: int) -> None:
        """Check that a run is still being worked on; if not, replace it by a new one."""
        run = phase_run("extract", scope, sequence)
        state = (await self._bus.memories.read(scope)).state
        rollout = state.rollouts.get(request.rollout)
        if rollout is None or rollout.extracting not in (request.watches, run):
            return
        if rollout.extracting != run:
            condition = await condition_of(self._bus, request.watches)
            if condition.done is not None:  # the end event may not name the phase
                part = MemoryPart(
                    scope=scope,
                    step="extract",
                    id=rollout.id,
                    attempt=request.attempt,
                    origin=rollout.runs[min(request.runs, len(rollout.runs)) - 1],
                )
                await self.finish(part, request.watches, condition.done)
                return
            if condition.is_ == "alive":
                await watch_again(self._means, scope, request, cause=f"watch:{sequence}")
                await self._note_slow(scope, request.rollout, request.watches, sequence)
                return
            await cancel_run(
                self._bus, request.watches, "its process is gone; the phase starts again"
            )

        async def decide(state: MemoryState) -> MemoryState | None:
            rollout = state.rollouts.get(request.rollout)
            if rollout is None or rollout.extracting != request.watches:
                return None
            return _with(state, rollout, extracting=run, is_slow=False)

        changed = await change(self._bus, scope, decide)
        await leave(self._bus, request.watches)
        await self._launch(changed, request.rollout, run)

    async def _note_slow(self, scope: str, id: str, run: str, sequence: int) -> None:
        """Mark a healthy but long extraction as slow, so that consolidations do not wait for it."""

        async def decide(state: MemoryState) -> MemoryState | None:
            rollout = state.rollouts.get(id)
            if rollout is None or rollout.extracting != run or rollout.is_slow:
                return None
            return _with(state, rollout, is_slow=True)

        state = await change(self._bus, scope, decide)
        await go_on(self._bus, state, cause=f"slow:{sequence}")

    async def _launch(self, state: MemoryState, id: str, run: str) -> None:
        rollout = state.rollouts.get(id)
        if rollout is None or rollout.extracting != run:
            return
        path = rollout_path(rollout.name)
        transcript = await load_one(self._bus, state.scope, state.tree, path)
        try:
            if not transcript:
                raise HostGone(GONE)
            await start_extraction(self._means, state, rollout, transcript)
        except HostGone as error:
            await self._fail(state.scope, id, run, rollout.attempt, str(error))
            return
        watched = ExtractRequested(
            rollout=id, runs=len(rollout.runs), attempt=rollout.attempt, watches=run
        )
        await watch_again(self._means, state.scope, watched, cause=run)

    # --- ending --------------------------------------------------------------------------------

    async def finish(self, part: MemoryPart, run: str, done: RunDone) -> None:
        """Handle the end of an extraction's run."""
        problem = problem_of(done)
        if problem:
            await self._fail(part.scope, part.id, run, part.attempt, problem)
            return
        try:
            found = parse_output(bytes(done.output))
        except InvalidExtraction as error:
            await self._fail(part.scope, part.id, run, part.attempt, f"invalid output: {error}")
            return

        async def decide(state: MemoryState) -> MemoryState | None:
            rollout = state.rollouts.get(part.id)
            if rollout is None or rollout.extracting != run or part.origin not in rollout.runs:
                return None
            return await self._accepted(state, rollout, part.origin, found)

        crashpoint("memory.before_extracted")
        state = await change(self._bus, part.scope, decide)
        crashpoint("memory.after_extracted")
        rollout = state.rollouts.get(part.id)
        if rollout is None or rollout.extracting or part.origin not in rollout.runs:
            return  # it was removed, or a new extraction has started
        seen = rollout.runs[: rollout.runs.index(part.origin) + 1]
        changed = MemoryChanged(
            revision=state.revision,
            kind="extracted",
            runs=seen,
            rollout=part.id,
            empty=found is None,
        )
        await tell(self._bus, part.scope, changed, cause=run)
        if rollout.extracted < len(rollout.runs):
            more = ExtractRequested(rollout=part.id, runs=len(rollout.runs))
            await ask_extraction(self._bus, part.scope, more, cause=run)
        await go_on(self._bus, state, cause=run)

    async def _accepted(
        self, state: MemoryState, rollout: Rollout, origin: str, found: Extraction | None
    ) -> MemoryState:
        """The state with the extraction; if it found nothing, an earlier memory stays as it was."""
        seen = rollout.runs.index(origin) + 1
        changes = {"extracted": seen, "extracting": "", "attempt": 0, "problem": ""}
        if found is None:
            return _with(state, rollout, **changes, empty=not rollout.slug)
        found = with_own_file(found, rollout, state.rollouts.values())
        scrub = self._means.scrub
        new = msgspec.structs.replace(
            rollout,
            **changes,
            empty=False,
            slug=found.slug,
            summary_file=summary_path(rollout.name, found.slug).removeprefix("memories/"),
            is_merged=False,
        )
        files: dict[str, bytes | None] = {}
        if rollout.summary_file:
            files[f"memories/{rollout.summary_file}"] = None  # its slug may have changed
        read = msgspec.structs.replace(new, runs=new.runs[:seen])  # the runs it was extracted from
        files[raw_path(new.name)] = raw_memory_file(found, read, scrub)
        files[f"memories/{new.summary_file}"] = summary_file(found, read, scrub)
        tree = await with_files(self._bus, state.scope, state.tree, files)
        state = msgspec.structs.replace(
            state,
            revision=state.revision + 1,
            rollouts={**state.rollouts, new.id: new},
            merge_problem=state.merge_problem if state.merge_attempt else "",
        )
        return msgspec.structs.replace(state, tree=within_bounds(state, tree))

    async def _fail(self, scope: str, id: str, run: str, attempt: int, problem: str) -> None:
        """Record the failure and schedule a retry, unless it was the last attempt or a cancel."""
        is_last = attempt >= self._means.attempts or problem == GONE
        is_stopped = problem.startswith(CANCELLED)

        async def decide(state: MemoryState) -> MemoryState | None:
            rollout = state.rollouts.get(id)
            if rollout is None or rollout.extracting != run:
                return None
            left = 0 if is_stopped else attempt
            return _with(state, rollout, extracting="", attempt=left, problem=problem)

        state = await change(self._bus, scope, decide)
        crashpoint("memory.after_failed")
        rollout = state.rollouts.get(id)
        if rollout is None or rollout.extracting or rollout.problem != problem:
            return
        failed = MemoryFailed(
            step="extract",
            attempt=attempt,
            error=problem,
            run=run,
            rollout=id,
            is_final=is_last or is_stopped,
        )
        await tell(self._bus, scope, failed, cause=run)
        again = ExtractRequested(rollout=id, runs=len(rollout.runs), attempt=attempt + 1)
        if is_stopped:
            await go_on(self._bus, state, cause=run)  # consolidations need not wait for it
        elif is_last:
            again = msgspec.structs.replace(again, attempt=self._means.attempts + 1)
            await ask_extraction(self._bus, scope, again, cause=f"{run}:last")  # to be parked
        else:
            delay_s = self._means.backoff_s[attempt - 1]
            name = f"extract-{digest_of(id)}"
            await ask_later(self._bus, scope, name, again, cause=run, delay_s=delay_s)
            await go_on(self._bus, state, cause=run)  # consolidations need not wait for it

    async def give_up(self, scope: str, request: ExtractRequested, sequence: int, why: str) -> None:
        """The request was parked: clear its running extraction."""
        run = phase_run("extract", scope, sequence)

        async def decide(state: MemoryState) -> MemoryState | None:
            rollout = state.rollouts.get(request.rollout)
            if rollout is None or rollout.extracting not in ("", run):
                return None
            if not is_pending(rollout):
                return None
            return _with(state, rollout, extracting="", attempt=0, problem=rollout.problem or why)

        state = await change(self._bus, scope, decide)
        # consolidations need not wait for it
        await go_on(self._bus, state, cause=f"parked:{sequence}")


def _with(state: MemoryState, rollout: Rollout, **changes: object) -> MemoryState:
    new = msgspec.structs.replace(rollout, **changes)
    return msgspec.structs.replace(state, rollouts={**state.rollouts, rollout.id: new})

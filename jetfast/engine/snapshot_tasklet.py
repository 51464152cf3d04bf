"""The tasklet of one processor in a job with a guarantee: takes part in snapshot rounds, and is restored.

`snapshot_context` draws a round. Barriers come as events of the inbound queues; a source, and a processor that has
sent D, starts round n itself when it has begun on this member. One that has sent D stays for later rounds, with its
final state, and forwards nothing; it is finished when phase 2 of a snapshot that ends the execution is over. After a
terminal barrier nothing is taken in, flushed or emitted any more, and D is not sent.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from jetfast.core.batch import Batch, BatchRun
from jetfast.core.crash_points import reach
from jetfast.core.guarantee import Guarantee
from jetfast.core.items import DONE, IDLE, Barrier
from jetfast.core.processor import Processor, ProcessorContext, StateBatch
from jetfast.core.snapshot_kind import SnapshotKind
from jetfast.engine.commit_thread import CommitThread
from jetfast.engine.inbound_edge import Inbound
from jetfast.engine.outbound_edge import Outbox
from jetfast.engine.processor_tasklet import ProcessorTasklet
from jetfast.engine.restored_state import RestoredState, engine_state
from jetfast.engine.snapshot_context import Saving, SnapshotContext, SnapshotEnding, SnapshotRound
from jetfast.errors import JobFailedError, ProtocolError, RestartableError

INPUTS_NAMED = 5
"""Inputs of a processor that are told to be waited for."""


class SnapshotTasklet(ProcessorTasklet):
    """As ProcessorTasklet, with snapshots. `restored` is the snapshot to start from, or None."""

    __slots__ = (
        "commits",
        "committed",
        "end_told",
        "ending",
        "failure",
        "restored",
        "restored_counters",
        "round",
        "saving",
        "snapshots",
        "stopped",
    )

    def __init__(
        self,
        processor: Processor,
        context: ProcessorContext,
        inbound: Inbound | None,
        outbox: Outbox,
        snapshots: SnapshotContext,
        restored: RestoredState | None = None,
    ) -> None:
        super().__init__(processor, context, inbound, outbox)
        self.snapshots = snapshots
        self.restored = restored
        self.restored_counters: dict[str, int] = {}
        """What was counted before this execution."""
        self.round: SnapshotRound | None = None
        """The last round that it has begun."""
        self.saving: Saving | None = None
        """What it has frozen and not prepared yet."""
        self.ending: SnapshotEnding | None = None
        """The last phase 2 that it has finished."""
        self.commits: CommitThread | None = None
        """Calls `commit_prepared` on its own thread; None: this tasklet does. Set before the tasklet is opened."""
        self.committed: SnapshotEnding | None = None
        """The last phase 2 of which `commit_prepared` is over. Written by the thread that calls it."""
        self.failure: Exception | None = None
        """Why its state could not be saved, if that is a reason to end the execution when the round is over."""
        self.stopped = False
        """A terminal barrier has left."""
        self.end_told = False

    def open(self) -> None:
        """Open the processor and give it back its state, on the thread that will call it."""
        super().open()
        restored, self.restored = self.restored, None
        try:
            if restored is not None:
                self.restore(restored)
            self.processor.finish_restore()
        except Exception as error:
            raise self.explain(error, "when its state was restored") from error

    def restore(self, restored: RestoredState) -> None:
        """Give the processor its share of a snapshot."""
        share = restored.take(self.context)
        for state in share.states:
            self.processor.restore_snapshot(state)
        self.restored_counters = share.counters
        if share.finished and (self.source is None or self.source.stays_ended):
            self.follow = DONE
            self.busy = True

    @property
    def counters(self) -> dict[str, int]:
        """What the processor has counted, before this execution too."""
        counters = self.context.counters.copy()
        for name, count in self.restored_counters.items():
            counters[name] = counters.get(name, 0) + count
        return counters

    def call(self) -> bool:
        """Go on with a snapshot, then take a few steps; False if there was nothing to do."""
        attended = self.attend()
        return super().call() or attended

    def attend(self) -> bool:
        """Prepare when the state is stored, commit in phase 2; even while an output is half taken, see `Processor`."""
        saving = self.saving
        if saving is not None:
            return saving.stored and self.prepare(saving)
        ending = self.snapshots.ending
        return ending is not None and ending is not self.ending and self.commit(ending)

    def prepare(self, saving: Saving) -> bool:
        """Finish phase 1; False if it takes longer."""
        if saving.error is None:
            try:
                if not self.processor.prepare(saving.round.snapshot_id):
                    return False
            except Exception as error:
                saving.error = f"it could not prepare: {type(error).__name__}: {error}"
            else:
                reach("after_prepare")
        reach("before_ack")
        self.saving = None
        self.snapshots.answer(saving)
        return True

    def commit(self, ending: SnapshotEnding) -> bool:
        """Finish phase 2; False if it takes longer."""
        snapshot_id = ending.round.snapshot_id
        if self.failure is not None:
            raise self.explain(self.failure, f"in snapshot {snapshot_id}", blame_batch=False) from self.failure
        if ending.success and self.committed is not ending:
            if self.commits is not None:
                return False
            self.commit_prepared(self.processor, ending)
        try:
            if not self.processor.commit(snapshot_id, ending.success):
                return False
        except Exception as error:
            raise self.explain(error, f"in phase 2 of snapshot {snapshot_id}", blame_batch=False) from error
        reach("after_commit_before_ack")
        self.ending = ending
        self.finished = ending.ends_execution
        self.snapshots.committed(ending)
        return True

    def commit_prepared(self, processor: Processor, ending: SnapshotEnding) -> None:
        """The part of phase 2 that `commits` does on its thread, if there is one."""
        try:
            processor.commit_prepared(ending.round.snapshot_id)
        except Exception as error:
            when = f"in phase 2 of snapshot {ending.round.snapshot_id}"
            raise self.explain(error, when, blame_batch=False) from error
        self.committed = ending

    def close(self, error: BaseException | None) -> None:
        """Close the processor, then wait for a commit that is under way."""
        if self.closed:
            return
        processor = self.processor
        try:
            super().close(error)
        finally:
            if self.commits is None:
                processor.end_commits()
            else:
                self.commits.end()

    @property
    def waits_for_outside(self) -> bool:
        """Has it asked the processor in vain to prepare or commit? Nobody will say when to ask again."""
        saving = self.saving
        if saving is not None:
            return saving.stored
        return self.snapshots.ending is not self.ending

    @property
    def waits_for(self) -> str | None:
        """What keeps it from answering in the present round, for people; None: it owes no answer. Any thread."""
        snapshots, saving, inbound = self.snapshots, self.saving, self.inbound
        if snapshots.ending is not self.ending:
            return "its transactions to be committed"
        if saving is not None:
            return "its transactions to be prepared" if saving.stored else "its state to be stored"
        if snapshots.round is self.round:
            return "room for what leaves ahead of the barrier" if type(self.follow) is Barrier else None
        if self.outbox.blocked:
            return "room for its output"
        if inbound is not None and not self.done_sent:
            missing = inbound.missing_barriers() or [queue.upstream for queue in inbound.queues]
            return f"barriers of {', '.join(missing[:INPUTS_NAMED])}{', ...' if len(missing) > INPUTS_NAMED else ''}"
        return "edges that must be done before others are read" if snapshots.waits_for_edges else "its turn"

    def poll_source(self) -> bool:
        if self.snapshots.round is not self.round and self.start_snapshot():
            return True
        if self.done_sent or self.stopped or not self.processor.takes_input:
            return False
        return super().poll_source()

    def take_event(self) -> bool:
        if self.done_sent:
            return (self.snapshots.round is not self.round and self.start_snapshot()) or self.drain()
        if self.stopped or not self.processor.takes_input:
            return False
        return super().take_event()

    def take_control(self, event: Any) -> None:
        if type(event) is Barrier:
            self.batch = None
            kind = SnapshotKind.TERMINAL if event.terminal else SnapshotKind.REGULAR
            self.begin_snapshot(self.snapshots.join(event.snapshot_id, kind))
        else:
            super().take_control(event)

    def drain(self) -> bool:
        """Throw away what comes in behind the end: nothing, unless this processor was restored as finished."""
        inbound = self.inbound
        assert inbound is not None
        event = inbound.poll()
        if event is None:
            return False
        if type(event) is Barrier:
            inbound.release()
        elif isinstance(event, Batch | BatchRun) and self.context.guarantee is Guarantee.EXACTLY_ONCE:
            raise ProtocolError(
                f"step {self.name!r} was restored as finished, but rows come in: its inputs were saved as if they had "
                "not ended"
            )
        return True

    def start_snapshot(self) -> bool:
        """Begin a round that no barrier tells of; False if it must wait."""
        if not self.done_sent and self.snapshots.waits_for_edges:
            return False
        begun = self.snapshots.round
        assert begun is not None
        self.begin_snapshot(begun)
        return True

    def begin_snapshot(self, begun: SnapshotRound) -> None:
        """The barrier has come on all inputs: what must leave ahead of it leaves, then the state is saved."""
        self.round = begun
        if not self.done_sent:
            output = self.processor.process_barrier()
            if output != ():
                if self.asleep and self.source is None:
                    self.emitted = False
                    output = self.asleep_again(output)
                self.output = iter(output)
        self.follow = Barrier(begun.snapshot_id, begun.kind is SnapshotKind.TERMINAL)
        self.busy = True

    def asleep_again(self, output: Iterable[Any]) -> Iterator[Any]:
        """Rows that leave while all inputs are idle wake who reads them: send them to sleep again, ahead of B."""
        yield from output
        if self.emitted:
            self.asleep = False
            yield IDLE

    def send_follow(self) -> bool:
        barrier = self.follow
        if type(barrier) is not Barrier:
            return super().send_follow()
        self.follow = None
        self.save()
        sent = self.done_sent or self.outbox.broadcast(barrier)
        self.stopped = barrier.terminal
        if self.inbound is not None and not self.done_sent:
            self.inbound.release()
        return sent

    def save(self) -> None:
        """Freeze the state and hand it to the writer."""
        reach("before_barrier")
        begun = self.round
        assert begun is not None
        context = self.context
        states: list[StateBatch] = []
        error: str | None = None
        started_us = context.now_us()
        try:
            states += self.processor.save_snapshot()
        except Exception as problem:
            error = f"its state could not be saved: {type(problem).__name__}: {problem}"
            # A round is never given up. But what a sink could not flush it may not try again.
            self.failure = problem if isinstance(problem, JobFailedError | RestartableError) else None
        pause_us = max(0, context.now_us() - started_us)
        states += engine_state(self.done_sent, self.counters)
        reach("after_state_saved")
        align_us = 0 if self.inbound is None or self.done_sent else self.inbound.align_us
        self.saving = Saving(begun, context.vertex, context.index, states, pause_us, align_us, error)
        self.snapshots.store_soon(self.saving)

    def take_end(self) -> None:
        """D has left, or a round has begun after it."""
        if not self.end_told:
            self.end_told = True
            self.snapshots.input_taken(self.context.vertex)

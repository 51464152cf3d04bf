"""Protocols that are broken on purpose, one rule each: the simulator must catch every one.

A mutation replaces one method of a shipped class while it is entered. What it breaks is its name.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from jetfast.control import job_state, snapshot_round
from jetfast.control.job_state import JobPhase
from jetfast.control.leases import GrantedLeases, HeldLease
from jetfast.control.snapshot_round import MemberSaved, RoundPhase, SnapshotRounds
from jetfast.control.store_commands import DeleteUndecided, StoreFailed, StoreWritten
from jetfast.core.batch import Batch
from jetfast.core.dag import Dag
from jetfast.core.items import Barrier
from jetfast.core.processor import StateBatch
from jetfast.engine.execution import Execution
from jetfast.engine.inbound_edge import Inbound
from jetfast.engine.memory_snapshot_store import MemorySnapshotStore
from jetfast.engine.restored_state import RestoredState
from jetfast.engine.snapshot_tasklet import SnapshotTasklet
from jetfast.errors import OutcomeUnknown
from jetfast.processors.accumulate_by_frame import AccumulateByFrame
from jetfast.processors.keyed_window import KeyedWindow
from jetfast.processors.sink import SinkWriterProcessor
from jetfast.processors.source import SourceReader
from jetfast.processors.transaction_ids import FreeIds, PooledIds
from jetfast.processors.transactional_sink import TransactionalSinkProcessor

Mutation = Callable[[], AbstractContextManager[Any]]


def _replace(owner: type, method: str, make: Callable[[Any], Any]) -> Mutation:
    """The mutation that puts `make(original)` in a method's place."""
    return lambda: patch.object(owner, method, make(getattr(owner, method)))


def _of_table(table: dict[Any, Any], row: tuple[Any, type], make: Callable[[Any], Any]) -> Mutation:
    """The mutation that puts `make(original)` in the place of a row of a table of transitions."""
    return lambda: patch.dict(table, {row: make(table[row])})


def _transition(phase: RoundPhase, event: type, make: Callable[[Any], Any]) -> Mutation:
    """That of the table of snapshot rounds."""
    return _of_table(snapshot_round._TRANSITIONS, (phase, event), make)


# What is saved


def _forget_an_id(original: Any) -> Any:
    def save_snapshot(self: Any) -> Any:
        return [
            StateBatch(state.partition, state.kind, state.rows.slice(0, state.rows.num_rows - 1))
            if state.kind == "transactions"
            else state
            for state in original(self)
        ]

    return save_snapshot


def save_a_row_less(original: Any) -> Any:
    def save_snapshot(self: Any) -> Iterator[Any]:
        for state in original(self):
            yield state if state.kind == "bounds" else replace(state, rows=state.rows.slice(1))

    return save_snapshot


def _save_the_position_before(original: Any) -> Any:
    def save_snapshot(self: Any) -> Any:
        last = getattr(self, "saved_before", None)
        self.saved_before = original(self)
        return last or self.saved_before

    return save_snapshot


def _keep_partials(original: Any) -> Any:
    return lambda self: ()


# Guarantees


def _lower_all_sinks_to_the_weakest(original: Any) -> Any:
    def guarantees(self: Any, wanted: Any) -> Any:
        kept = original(self, wanted)
        return kept._replace(state=kept.job)

    return guarantees


def _align_for_sinks_only(original: Any) -> Any:
    def guarantees(self: Any, wanted: Any) -> Any:
        kept = original(self, wanted)
        return kept._replace(state=max([kept.job, *kept.sinks.values()], key=lambda guarantee: guarantee.strength))

    return guarantees


# Partitions that come


def _announce_in_any_order(original: Any) -> Any:
    def add_partitions(self: Any, vertex: str, announced: Any) -> None:
        original(self, vertex, announced._replace(names=announced.names[:: 1 if self.member == 0 else -1]))

    return add_partitions


def _keep_announcements_to_oneself(original: Any) -> Any:
    def announce(self: Any, vertex: str, announced: Any) -> None:
        self.add_partitions(vertex, announced)

    return announce


# Barriers


def _align_one_queue_less(original: Any) -> Any:
    def take_barrier(self: Any, queue: Any, barrier: Barrier) -> None:
        original(self, queue, barrier)
        missing = [
            other
            for other in self.queues
            if self.aligner.aligning is not None and other.upstream in self.missing_barriers()
        ]
        if len(missing) == 1 and len(self.queues) > 1 and not self.events:
            self.finish_alignment()

    return take_barrier


def _do_not_block(original: Any) -> Any:
    def take_barrier(self: Any, queue: Any, barrier: Barrier) -> None:
        readable = self.readable
        original(self, queue, barrier)
        self.readable = readable  # what follows the barrier is read as if it came before

    return take_barrier


def _freeze_behind_the_barrier(original: Any) -> Any:
    def send_follow(self: Any) -> bool:
        barrier = self.follow
        if type(barrier) is not Barrier or self.inbound is None or self.done_sent or barrier.terminal:
            return bool(original(self))
        self.follow = None
        self.inbound.release()
        follower = self.inbound.poll()
        if isinstance(follower, Batch):  # it belongs to the next snapshot
            for item in self.processor.process(self.inbound.ordinal, follower):
                self.outbox.send(item)
        elif follower is not None:
            self.inbound.events.appendleft(follower)
        self.save()
        return bool(self.outbox.broadcast(barrier))

    return send_follow


# The decision


def _decide_before_all_have_saved(original: Any) -> Any:
    def saved(self: Any, event: MemberSaved) -> Any:
        if len(self.waiting_for) > 1:
            self.waiting_for = {event.member}
        return original(self, event)

    return saved


def _ignore_failures(original: Any) -> Any:
    return lambda self, event: original(self, replace(event, errors=()))


def _take_the_unknown_for_a_failure(original: Any) -> Any:
    def not_decided(self: Any, event: Any) -> Any:
        return self._not_written(event) if isinstance(event.error, OutcomeUnknown) else original(self, event)

    return not_decided


def _say_success_always(original: Any) -> Any:
    return lambda self, success: original(self, True)


def _write_the_record_unconditionally(original: Any) -> Any:
    def replace_record(self: Any, record: Any, version: int) -> int:
        present = self._records.get(record.job)
        return int(original(self, record, 0 if present is None else present.version))

    return replace_record


# Phase 2


def _acknowledge_without_commit(original: Any) -> Any:
    return lambda self, snapshot_id: None


def _commit_everything_pending(original: Any) -> Any:
    def commit(self: Any, snapshot_id: int, success: bool) -> bool:
        if self.transactions is not None and self.current is not None and success:
            current = self.current
            self.transactions.prepare(current.text)
            self._commit(self.transactions, current.text, current.token)
            self.current = None
        return bool(original(self, snapshot_id, success))

    return commit


def _commit_what_failed(original: Any) -> Any:
    def commit(self: Any, snapshot_id: int, success: bool) -> bool:
        if not success:
            self.commit_prepared(snapshot_id)
        return bool(original(self, snapshot_id, True))

    return commit


def _end_a_sink_at_its_own_end(original: Any) -> Any:
    def complete(self: Any) -> Any:
        if self.transactions is not None and self.current is not None:
            self.transactions.prepare(self.current.text)
            self._commit(self.transactions, self.current.text, self.current.token)
            self.current = None
        return original(self)

    return complete


def _skip_prepare(original: Any) -> Any:
    def prepare(self: Any, snapshot_id: int) -> bool:
        for transaction in self.waiting:
            transaction.prepared = True
        return True

    return prepare


def _end_without_a_last_snapshot(original: Any) -> Any:
    def take_end(self: Any) -> None:
        original(self)
        self.finished = True

    return take_end


# Restore


def _restore_without_commits(original: Any) -> Any:
    return lambda self, transactions, text, token: (
        None if not self.waiting else original(self, transactions, text, token)
    )


def _roll_nothing_back(original: Any) -> Any:
    return lambda self, transactions: []


def _roll_back_what_others_must_commit(original: Any) -> Any:
    def finish_restore(self: Any) -> None:
        if self.transactions is not None:
            for text in self.restored:
                if not self._is_mine(self.owner.parse(text)):
                    self.transactions.rollback(text)
        original(self)

    return finish_restore


def _commit_only_ones_own_index(original: Any) -> Any:
    return lambda self, transaction: transaction is not None and transaction.processor == self.context.index


def _reuse_decided_ids(original: Any) -> Any:
    def next_id(self: Any, undecided: Any, decided: Any) -> Any:
        self.turn = 0
        return original(self, undecided, ())

    return next_id


def _reuse_ids_of_earlier_executions(original: Any) -> Any:
    return lambda self, owner, execution_id, processor: original(self, owner, 1, processor)


def _restore_the_first_half(original: Any) -> Any:
    def read(self: Any, context: Any) -> Mapping[int, Any]:
        shares: Mapping[int, Any] = original(self, context)
        for share in shares.values():
            share.states = share.states[: max(1, len(share.states) // 2)]
        return shares

    return read


def _do_not_restore_positions(original: Any) -> Any:
    def restore_snapshot(self: Any, state: Any) -> None:
        """Nothing."""

    return restore_snapshot


def _forget_at_once(original: Any) -> Any:
    def commit_prepared(self: Any, snapshot_id: int) -> None:
        original(self, snapshot_id)
        if self.committer is not None:
            self.committer.forget([transaction.text for transaction in self.waiting])

    return commit_prepared


def _skip_flush(original: Any) -> Any:
    def save_snapshot(self: Any) -> Any:
        return ()

    return save_snapshot


# Leases


def _delete_what_may_be_decided(original: Any) -> Any:
    def not_decided(self: Any, event: StoreFailed) -> Any:
        commands = original(self, event)
        if isinstance(event.error, OutcomeUnknown):
            commands.append(DeleteUndecided(self.claimed.record.snapshot, self._next_area))
        return commands

    return not_decided


def _begin_at_once(original: Any) -> Any:
    def claimed(self: Any, event: Any) -> Any:
        self._predecessors = ()
        return original(self, event)

    return claimed


def _believe_for_too_long(original: Any) -> Any:
    return lambda self, number, seconds: original(self, number, 1.5 * seconds)


def _grant_always(original: Any) -> Any:
    def grant(self: Any, member: int, now_s: float) -> float:
        self.confirm(now_s)
        seconds: float = original(self, member, now_s)
        return seconds

    return grant


def _give_up_early(original: Any) -> Any:
    return lambda self, now_s: original(self, now_s + self.lease_s / 2)


STORE_FAILURES = {
    "delete a snapshot whose decision is unknown": 0.1,
    "take an unknown decision for a failure": 0.1,
    "write the record unconditionally": 0.0,
}
"""How often the store fails while these are looked for: they show only then, or only while it does not."""

MUTATIONS: dict[str, Mutation] = {
    "forget an id in the snapshot": _replace(TransactionalSinkProcessor, "save_snapshot", _forget_an_id),
    "save one key of windows less": _replace(KeyedWindow, "save_snapshot", save_a_row_less),
    "save the positions of the snapshot before": _replace(SourceReader, "save_snapshot", _save_the_position_before),
    "keep partial results at a barrier": _replace(AccumulateByFrame, "process_barrier", _keep_partials),
    "lower all sinks to the weakest one": _replace(Dag, "guarantees", _lower_all_sinks_to_the_weakest),
    "align for sinks and not for state": _replace(Dag, "guarantees", _align_for_sinks_only),
    "announce partitions in any order": _replace(Execution, "add_partitions", _announce_in_any_order),
    "announce partitions to one member": _replace(Execution, "_announce", _keep_announcements_to_oneself),
    "align one queue less": _replace(Inbound, "take_barrier", _align_one_queue_less),
    "read on behind a barrier": _replace(Inbound, "take_barrier", _do_not_block),
    "freeze behind the barrier": _replace(SnapshotTasklet, "send_follow", _freeze_behind_the_barrier),
    "decide before all have saved": _transition(RoundPhase.SAVING, MemberSaved, _decide_before_all_have_saved),
    "decide though a member has failed": _transition(RoundPhase.SAVING, MemberSaved, _ignore_failures),
    "take an unknown decision for a failure": _transition(
        RoundPhase.DECIDING, StoreFailed, _take_the_unknown_for_a_failure
    ),
    "delete a snapshot whose decision is unknown": _transition(
        RoundPhase.DECIDING, StoreFailed, _delete_what_may_be_decided
    ),
    "say success after a failure": _replace(SnapshotRounds, "_end", _say_success_always),
    "write the record unconditionally": _replace(
        MemorySnapshotStore, "replace_record", _write_the_record_unconditionally
    ),
    "acknowledge without a commit": _replace(
        TransactionalSinkProcessor, "commit_prepared", _acknowledge_without_commit
    ),
    "commit everything pending": _replace(TransactionalSinkProcessor, "commit", _commit_everything_pending),
    "commit what a failed round has prepared": _replace(TransactionalSinkProcessor, "commit", _commit_what_failed),
    "end a sink at its own D": _replace(TransactionalSinkProcessor, "complete", _end_a_sink_at_its_own_end),
    "commit without having prepared": _replace(TransactionalSinkProcessor, "prepare", _skip_prepare),
    "end without a last snapshot": _replace(SnapshotTasklet, "take_end", _end_without_a_last_snapshot),
    "restore without commits": _replace(TransactionalSinkProcessor, "_commit", _restore_without_commits),
    "roll nothing back": _replace(TransactionalSinkProcessor, "_unnamed", _roll_nothing_back),
    "roll back what another processor must commit": _replace(
        TransactionalSinkProcessor, "finish_restore", _roll_back_what_others_must_commit
    ),
    "settle transactions of the same index only": _replace(
        TransactionalSinkProcessor, "_is_mine", _commit_only_ones_own_index
    ),
    "reuse an id of the decided snapshot": _replace(PooledIds, "next_id", _reuse_decided_ids),
    "reuse ids of earlier executions": _replace(FreeIds, "__init__", _reuse_ids_of_earlier_executions),
    "restore half of the state": _replace(RestoredState, "read", _restore_the_first_half),
    "do not restore positions": _replace(SourceReader, "restore_snapshot", _do_not_restore_positions),
    "forget commits that the snapshot names": _replace(TransactionalSinkProcessor, "commit_prepared", _forget_at_once),
    "begin before the leases of others have run out": _of_table(
        job_state._TRANSITIONS, (JobPhase.CLAIMING, StoreWritten), _begin_at_once
    ),
    "believe in a lease for longer than it was granted": _replace(HeldLease, "granted", _believe_for_too_long),
    "grant leases without knowing whose the job is": _replace(GrantedLeases, "grant", _grant_always),
    "give up a member before its lease has run out": _replace(GrantedLeases, "run_out", _give_up_early),
    "save at least once without a flush": _replace(SinkWriterProcessor, "save_snapshot", _skip_flush),
}

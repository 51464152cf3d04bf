"""Says what a snapshot waits for: the store, or which members, and of these which processors and for what."""

from collections.abc import Iterable, Mapping
from typing import Any

from jetfast.control.snapshot_history import SnapshotHistory
from jetfast.control.snapshot_round import RoundPhase, SnapshotRounds


def explain_snapshot(
    rounds: SnapshotRounds | None,
    history: SnapshotHistory,
    seconds: float,
    store: str,
    reports: Iterable[tuple[int, Mapping[str, Any]]],
) -> str:
    """Return lines about the snapshot that is being taken, or one about the last.

    Parameters
    ----------
    rounds : of the present execution, if it takes snapshots
    seconds : since the present round began
    store : name of the store
    reports : members, and what `Execution.metrics()` last told of each
    """
    if rounds is None:
        return "no snapshots are taken at present"
    if rounds.phase in (RoundPhase.NEW, RoundPhase.WAITING, RoundPhase.OVER, RoundPhase.STOPPED):
        last = history.last
        if not last:
            return "no snapshot has been taken yet"
        became = "failed: " + "; ".join(last[-1]["errors"]) if last[-1]["errors"] else "succeeded"
        return f"snapshot {last[-1]['snapshot_id']} {became}, after {last[-1]['seconds']:.3f} s"
    head = f"snapshot {rounds.snapshot_id}, for {seconds:.1f} s: {rounds.phase.value}"
    if rounds.phase in (RoundPhase.VALIDATING, RoundPhase.DECIDING, RoundPhase.EXPORTING):
        return f"{head}; waits for {store}"
    lines = [f"{head}; waits for member(s) {', '.join(map(str, sorted(rounds.waiting_for)))}"]
    for member, metrics in reports:
        told = metrics.get("snapshot")
        if member in rounds.waiting_for and told is not None and told["snapshot_id"] == rounds.snapshot_id:
            lines += (f"  member {member}: {waits['step']} waits for {waits['for']}" for waits in told["waits"])
    return "\n".join(lines)

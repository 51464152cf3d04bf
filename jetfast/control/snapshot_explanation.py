"""Says what a snapshot waits for: which members owe an answer, or the store."""

from jetfast.control.runner import Runner
from jetfast.control.snapshot_round import RoundPhase


def explain_snapshot(runner: Runner) -> str:
    """Return one or two lines about the snapshot that is being taken, or about the last one."""
    rounds = runner.coordinator.rounds
    job = runner.plan.job
    if rounds is None:
        return f"job {job} takes no snapshots at present"
    if rounds.phase in (RoundPhase.SAVING, RoundPhase.ENDING):
        waits = f"waits for member(s) {', '.join(map(str, sorted(rounds.waiting_for)))}"
    elif rounds.phase in (RoundPhase.VALIDATING, RoundPhase.DECIDING):
        store = runner.plan.snapshot_store
        waits = f"waits for {'its store' if store is None else store.name}"
    else:
        last = runner.snapshots.last
        if not last:
            return f"job {job}: no snapshot has been taken yet"
        became = "failed: " + "; ".join(last[-1]["errors"]) if last[-1]["errors"] else "succeeded"
        return f"job {job}: snapshot {last[-1]['snapshot_id']} {became}, after {last[-1]['seconds']:.3f} s"
    seconds = runner.seconds - runner.round_started_s
    return f"job {job}: snapshot {rounds.snapshot_id} is {rounds.phase.value} since {seconds:.1f} s and {waits}"

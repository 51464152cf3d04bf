"""Says who was in the way of a statement that gave up waiting for a lock (`lock_timeout`).

`pg_blocking_pids` of a session is empty as soon as it no longer waits. So the same is asked of the locks themselves:
who holds, or waits ahead for, a lock on the table that conflicts with the one that was wanted. Of these sessions
`pg_blocking_pids` tells whom they wait for in turn: often the open or prepared transactions of the job itself.
"""

from collections.abc import Sequence
from typing import Any

WRITE_LOCK = "RowExclusiveLock"
READ_LOCK = "AccessShareLock"
_CONFLICTS = {
    WRITE_LOCK: ("ShareLock", "ShareRowExclusiveLock", "ExclusiveLock", "AccessExclusiveLock"),
    READ_LOCK: ("AccessExclusiveLock",),
}
_QUERY_CHARACTERS = 200
"""Of a statement that is in the way, so many are shown."""

_LOCKS = """
select l.relation::regclass::text, l.pid, l.mode, l.granted, pg_blocking_pids(l.pid), a.query, p.gid
from pg_locks l
left join pg_stat_activity a on a.pid = l.pid
left join pg_prepared_xacts p on l.pid is null and l.virtualtransaction = '-1/' || p.transaction
where l.locktype = 'relation' and l.pid is distinct from pg_backend_pid()
and l.database = (select oid from pg_database where datname = current_database())
and l.relation in (
    select t.relid from unnest(%(tables)s::text[]) name, pg_partition_tree(to_regclass(name)) t
    union select to_regclass(name) from unnest(%(tables)s::text[]) name)
order by l.granted desc, l.pid
"""


def explain_lock_wait(connection: Any, tables: Sequence[str], lock: str) -> str:
    """Return what a statement that wanted `lock` on one of these tables has waited for: table, lock, pids, queries.

    tables : as in SQL, quoted where need be, the most likely one first; those that do not exist are left out
    """
    found = connection.execute(_LOCKS, {"tables": list(tables)}).fetchall()
    conflicting = [row for row in found if row[2] in _CONFLICTS[lock]]
    if conflicting:
        table = conflicting[0][0]
        return f"{lock} on {table}, behind {'; '.join(_holder(*row[1:]) for row in conflicting if row[0] == table)}"
    others = "; ".join(_holder(*row[1:]) for row in found if row[2] == WRITE_LOCK)
    return (
        f"{lock} on {tables[0]}, or a row of it: no lock on the table is in the way any more"
        f"{f'; transactions that have written to it: {others}' if others else ''}"
    )


def _holder(
    pid: int | None, mode: str, granted: bool, waits_for: Sequence[int] | None, query: str | None, gid: str | None
) -> str:
    if pid is None:
        return f"prepared transaction {gid} ({mode})"
    waiting = "" if granted else ", not granted"
    if waits_for:
        waiting += f", waits for {', '.join(map(_blocker, sorted(set(waits_for))))}"
    statement = " ".join((query or "").split())
    if len(statement) > _QUERY_CHARACTERS:
        statement = statement[:_QUERY_CHARACTERS] + "..."
    return f"pid {pid} ({mode}{waiting}: {statement})"


def _blocker(pid: int) -> str:
    return f"pid {pid}" if pid else "a prepared transaction"

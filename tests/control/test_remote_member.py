"""A member by itself, over a real connection: what it says and does not say at its end."""

import threading

import pytest

from jetfast.control import messages
from jetfast.control.endpoint import Listener
from jetfast.control.messages import NO_EXECUTION, LeaseGranted, Prepare, Registered
from jetfast.control.remote_member import MemberTask, Surroundings, run_member
from jetfast.control.wire import Connection, Hello, Proven, make_token
from jetfast.core.dag import Dag
from jetfast.core.guarantee import Guarantee
from jetfast.errors import MemberLostError

PATIENCE_S = 60.0
LEASE_S = 0.3


def test_a_member_whose_lease_runs_out_while_it_waits_for_a_peer_reports_no_failure_of_the_job() -> None:
    said: list[str] = []
    ended = threading.Event()

    def coordinate(proven: Proven, hello: Hello) -> None:
        connection = Connection(proven)
        registered = messages.decode_from_member(connection.receive() or b"")
        assert isinstance(registered, Registered)
        lease = LeaseGranted(execution_id=NO_EXECUTION, number=0, lease_us=int(LEASE_S * 1e6))
        connection.send(messages.encode(lease))  # the only one
        prepare = Prepare(
            execution_id=1,
            job="job",
            job_id="id",
            member=0,
            member_count=2,
            workers=1,
            peers=[registered.address] * 2,  # member 1 never comes
            dag=b"",
            guarantee=Guarantee.NONE,
            memory_limit_bytes=1 << 20,
        )
        connection.send(messages.encode(prepare))
        while (data := connection.receive()) is not None:
            said.append(type(messages.decode_from_member(data)).__name__)
        connection.close()
        ended.set()

    token = make_token()
    listener = Listener(token, "coordinator", lambda hello: None, coordinate)
    task = MemberTask(0, listener.address, token, lease_s=LEASE_S)
    with pytest.raises(MemberLostError, match="its lease has run out"):
        run_member(task, Surroundings(exit_grace_s=PATIENCE_S, load_dag=lambda dag: Dag("dag")))
    assert ended.wait(PATIENCE_S)
    assert set(said) <= {"RenewLease"}
    listener.close()

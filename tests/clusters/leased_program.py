"""A program that copies numbered rows on two processes: frozen, killed, continued by `test_leases_of_processes`.

It prints the process ids of its members when a snapshot has been decided, and its outcome at the end.
"""

import sys
import threading

import jetfast as jf
from jetfast.errors import JetfastError
from tests.clusters.copied_rows import LEASE, Copied, copy_on_processes


def main(folder: str, conninfo: str) -> None:
    job = copy_on_processes(Copied(folder, conninfo), LEASE)

    def tell() -> None:
        while job.metrics["snapshots_taken"] < 3 or job.metrics["rows_read"] == 0:
            if job.runner.wait(0.01):
                return
        print(*(member["pid"] for member in job.metrics["members"]), flush=True)

    threading.Thread(target=tell, name="tell", daemon=True).start()
    try:
        job.wait()
    except JetfastError as error:
        print(type(error).__name__, error, flush=True)
    else:
        assert job.status is jf.JobStatus.COMPLETED
        print("completed", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

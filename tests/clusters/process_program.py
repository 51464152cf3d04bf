"""A program that runs a job on processes: killed or interrupted, and started again, by `test_process_cluster`."""

import threading

import jetfast as jf


def run_for_ever() -> None:
    """Print the process ids of members when rows flow; go on until somebody ends this."""
    pipeline = jf.Pipeline("endless")
    rows = pipeline.read(jf.memory({"n": list(range(10))}, partitions=2, unbounded=True), name="rows")
    rows.collect()
    job = jf.ProcessCluster(2).submit(pipeline, progress=False)

    def tell() -> None:
        while job.metrics["rows_written"] < 10:
            threading.Event().wait(0.01)
        print(*(member["pid"] for member in job.metrics["members"]), flush=True)

    # Whoever reads the ids may interrupt at once: this thread is to be in `wait` by then.
    threading.Thread(target=tell, name="tell", daemon=True).start()
    try:
        job.wait()
    except KeyboardInterrupt:
        names = [thread.name for thread in threading.enumerate() if thread.name.startswith("jetfast")]
        print(job.status.value, *names, flush=True)
        raise


if __name__ == "__main__":
    run_for_ever()

"""Ctrl-C in a program that runs a job on Spark stops the job everywhere."""

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

PROGRAM = """
import time, threading
import pyarrow as pa
import jetfast as jf
from jetfast.spark import SparkCluster
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
session = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
pipeline = jf.Pipeline("endless")
rows = pipeline.read(jf.memory(pa.table({"n": range(10)}), partitions=2, unbounded=True), name="rows")
rows.write(jf.collect())
job = SparkCluster(session, members=2).submit(pipeline, progress=False)
while job.metrics["rows_written"] < 10:
    threading.Event().wait(0.01)
try:
    print(*(member["pid"] for member in job.metrics["members"]), flush=True)  # the signal may come at once
    job.wait()
except KeyboardInterrupt:
    try:
        job.wait()
    except jf.errors.JetfastError:
        pass
    print(job.status.value, *(t.name for t in threading.enumerate() if t.name.startswith("jetfast")), flush=True)
    session.stop()
    raise
"""


@pytest.mark.spark
def test_ctrl_c_stops_members_and_leaves_no_thread_or_process() -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    pids = program.stdout.readline().split()
    assert len(pids) == 2, program.communicate()
    program.send_signal(signal.SIGINT)
    output, errors = program.communicate(timeout=120)
    assert output.split() == ["failed"], errors
    assert program.returncode != 0
    assert "KeyboardInterrupt" in errors
    give_up = time.monotonic() + 60
    while left := [pid for pid in pids if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < give_up, left
        threading.Event().wait(0.01)  # they end with the JVM

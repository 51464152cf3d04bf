"""`jetfast run --cluster spark`: a driver that is killed, and the job that `jetfast resume` goes on with."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from jetfast.cli.cluster_options import ClusterKind, make_cluster
from jetfast.control.job_client import find_job
from jetfast.errors import JetfastError, JobDefinitionError
from tests.cli.copying import COPYING

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

PATIENCE_S = 400.0
ROWS = 20_000


def test_a_job_on_spark_is_run_and_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runtime").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    (tmp_path / "copying.py").write_text(COPYING.replace("ROWS", str(ROWS)))

    def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "jetfast", *arguments, "--store", "snapshots", "--master", "local[2]", "--json"],
            cwd=tmp_path,
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def has_snapshots() -> bool:
        try:
            return find_job("copy")[1].rows_written > 0
        except JetfastError:  # it is not there yet
            return False

    first = start("run", "copying.py", "--cluster", "spark", "--snapshot-interval", "100ms", RATE="100")
    try:
        for _ in range(int(PATIENCE_S / 0.05)):
            if has_snapshots() or first.poll() is not None:
                break
            threading.Event().wait(0.05)
        assert first.poll() is None, first.communicate()
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.communicate()
    second = start("resume", "copy", "--pipeline", "copying.py")
    try:
        out, errors = second.communicate(timeout=PATIENCE_S)
    finally:
        if second.poll() is None:
            os.killpg(second.pid, signal.SIGKILL)
    assert second.returncode == 0, errors
    report = json.loads(out)
    assert (report["status"], report["cluster"], report["members_wanted"]) == ("completed", "spark", 1)
    rows = ds.dataset(tmp_path / "out", format="parquet").to_table()["row"].to_pylist()
    assert sorted(rows) == list(range(ROWS))


def test_a_master_is_of_spark_only() -> None:
    with pytest.raises(JobDefinitionError, match="--master is Spark's"):
        make_cluster(ClusterKind.LOCAL, None, None, "local[2]")

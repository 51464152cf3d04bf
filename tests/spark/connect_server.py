"""A Spark Connect server of its own for a test run: a driver in a process of its own, on a free port."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from collections import deque
from pathlib import Path

_STARTED = re.compile(r"Spark Connect server started at: .*:(\d+)")
_LAST_LINES = 40


class ConnectServer:
    """Started by `with`, stopped at its end."""

    def __init__(self, master: str) -> None:
        self.master = master
        self.url = ""

    def __enter__(self) -> "ConnectServer":
        import pyspark

        home = Path(pyspark.__file__).parent
        self.folder = Path(tempfile.mkdtemp(prefix="jetfast-connect-"))
        settings = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": "0",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.local.dir": str(self.folder),
            "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "2",
        }
        command = [str(home / "bin" / "spark-submit"), "--master", self.master]
        command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
        for name, value in settings.items():
            command += ["--conf", f"{name}={value}"]
        self.process = subprocess.Popen(
            [*command, "spark-internal"],
            env={**os.environ, "SPARK_HOME": str(home), "SPARK_CONNECT_MODE": "0"},
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        last: deque[str] = deque(maxlen=_LAST_LINES)
        assert self.process.stdout is not None
        for line in self.process.stdout:
            last.append(line)
            if (started := _STARTED.search(line)) is not None:
                self.url = f"sc://127.0.0.1:{started[1]}"
                break
        assert self.url, "the Connect server did not start:\n" + "".join(last)
        self.reader = threading.Thread(target=deque, args=(self.process.stdout, 0), daemon=True)
        self.reader.start()  # else it waits when the pipe is full
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)

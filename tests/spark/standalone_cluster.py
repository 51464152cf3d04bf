"""A standalone Spark cluster of its own for a test run: a master, and workers that have addresses of their own.

Workers may leave for good, and others may come.
"""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from collections import deque
from pathlib import Path

_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_WORKER = re.compile(r"Successfully registered with master")
_LAST_LINES = 40


class StandaloneCluster:
    """Started by `with`, with so many workers of so many cores each; stopped at its end."""

    def __init__(self, workers: int, cores: int) -> None:
        self.workers = workers
        self.cores = cores
        self.url = ""
        self.processes: list[subprocess.Popen[str]] = []
        """The master, then each worker that ever came."""
        self.readers: list[threading.Thread] = []

    def __enter__(self) -> "StandaloneCluster":
        self.folder = Path(tempfile.mkdtemp(prefix="jetfast-standalone-"))
        try:
            self.url = self._start("master.Master", "127.0.0.1", "--port", "0", "--webui-port", "0", until=_MASTER)[1]
            for _ in range(self.workers):
                self.start_worker()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)  # a worker ends its executors
        for process in self.processes:
            process.wait()
        for process, reader in zip(self.processes, self.readers, strict=False):
            reader.join()
            assert process.stdout is not None
            process.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start_worker(self) -> int:
        """Let a worker come, on an address of its own (Spark speculates on another host only); return its pid."""
        address = f"127.0.0.{len(self.processes)}"
        resources = ["--cores", str(self.cores), "--memory", "1g", "--webui-port", "0"]
        resources += ["--work-dir", str(self.folder), self.url]
        self._start("worker.Worker", address, *resources, until=_WORKER)
        return self.processes[-1].pid

    def end_worker(self, pid: int, how: signal.Signals) -> None:
        """Let a worker leave for good; its executors end with it, though maybe a moment later."""
        process = next(process for process in self.processes[1:] if process.pid == pid)
        process.send_signal(how)
        process.wait()

    def _start(self, name: str, host: str, *arguments: str, until: re.Pattern[str]) -> re.Match[str]:
        """Start a process of the cluster; return the line that tells that it has come."""
        import pyspark

        home = Path(pyspark.__file__).parent
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", "--host", host]
        process = subprocess.Popen(
            [*command, *arguments],
            env={**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": host},
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.processes.append(process)
        assert process.stdout is not None
        last: deque[str] = deque(maxlen=_LAST_LINES)
        for line in process.stdout:
            last.append(line)
            if (told := until.search(line)) is not None:
                reader = threading.Thread(target=deque, args=(process.stdout, 0), daemon=True)
                reader.start()  # else it waits when the pipe is full
                self.readers.append(reader)
                return told
        raise AssertionError(f"{name} did not start:\n" + "".join(last))

"""Starts a job that a cluster has set up: reachable by the command line, and stopped when the program ends."""

from jetfast.clusters.at_exit import stop_at_exit
from jetfast.control.job import Job
from jetfast.control.job_server import JobServer
from jetfast.control.runner import Runner
from jetfast.core.dag import Dag


def start_job(runner: Runner, dag: Dag, *, cluster: str, progress: bool | None) -> Job:
    """Let the job begin and return its handle. `cluster`: its kind, as `JobReport.cluster`."""
    job = Job(runner, dag, progress=progress)
    server = JobServer(job, cluster)
    runner.on_end = server.close
    server.start()
    runner.start()
    stop_at_exit(runner)
    return job

"""A PostgreSQL server of its own for a test run: on a free port of the loopback interface, in a folder of its own."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

_INSTALL = "PostgreSQL's server is not installed; run: apt-get install --yes --no-install-recommends postgresql"


class PostgresServer:
    """Started by `with`, stopped and removed at its end. fsync is off: no test pulls the plug."""

    def __init__(self, max_prepared_transactions: int = 100) -> None:
        self.settings = {
            "listen_addresses": "127.0.0.1",
            "max_prepared_transactions": str(max_prepared_transactions),
            "max_connections": "100",
            "fsync": "off",
            "log_min_messages": "fatal",
        }
        self.folder = Path(tempfile.mkdtemp(prefix="jetfast-postgres-"))
        self.port = 0

    @property
    def conninfo(self) -> str:
        return f"host=127.0.0.1 port={self.port} user=postgres dbname=postgres"

    def __enter__(self) -> "PostgresServer":
        if os.getuid() == 0:  # the server refuses to be run by root
            user = pwd.getpwnam("postgres")
            os.chown(self.folder, user.pw_uid, user.pw_gid)
        self.run("initdb", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--no-sync", "--pgdata", self.data)
        self.port = free_port()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def data(self) -> str:
        return str(self.folder / "data")

    def start(self) -> None:
        options = f"-p {self.port} -k {self.folder} " + " ".join(
            f"-c {name}={value}" for name, value in self.settings.items()
        )
        log = str(self.folder / "log")
        self.run("pg_ctl", "--wait", "--silent", "--pgdata", self.data, "--log", log, "--options", options, "start")

    def stop(self, mode: str = "fast") -> None:
        self.run("pg_ctl", "--wait", "--silent", "--pgdata", self.data, "--mode", mode, "stop")

    def clear(self) -> None:
        """Roll back what is prepared and drop all schemas, over a new connection: a test may have restarted it."""
        import psycopg

        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            for (transaction,) in connection.execute("select gid from pg_prepared_xacts").fetchall():
                connection.execute(f"rollback prepared '{transaction}'")
            schemas = connection.execute(
                "select format('%I', nspname) from pg_namespace "
                "where nspname !~ '^pg_' and nspname <> 'information_schema'"
            )
            for (schema,) in schemas.fetchall():
                connection.execute(f"drop schema {schema} cascade")
            connection.execute("create schema public")

    def run(self, program: str, *arguments: str) -> None:
        command = [_program(program), *arguments]
        if os.getuid() == 0:
            command = ["runuser", "-u", "postgres", "--", *command]
        # pg_ctl's server keeps what it inherits open: a pipe would never end.
        with tempfile.TemporaryFile() as output:
            done = subprocess.run(command, stdout=output, stderr=output, cwd=self.folder, check=False)
            if done.returncode:
                output.seek(0)
                raise RuntimeError(f"{program} failed: {output.read().decode(errors='replace')}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _program(name: str) -> str:
    found: Sequence[Path] = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    path = str(found[-1]) if found else shutil.which(name)
    if path is None:
        raise RuntimeError(_INSTALL)
    return path

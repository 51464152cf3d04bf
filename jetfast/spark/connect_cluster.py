"""Members on the executors behind a Spark Connect server: this process, the client, coordinates.

For pipelines that end, by `jetfast.spark.run`. A client sees neither slots nor executors, and may be on a network that
executors do not reach: they find that out before the first row.
"""

import logging
import re
import socket
from ipaddress import ip_address
from typing import Any

from jetfast.control.remote_member import MemberTask
from jetfast.errors import JobDefinitionError, ResourcesError
from jetfast.spark.cluster import SparkCluster
from jetfast.spark.jobs import SparkJobs
from jetfast.spark.members import RESULT_SCHEMA, member_function
from jetfast.spark.slots import Size, is_connect

logger = logging.getLogger("jetfast.spark")

_LOCAL_MASTER = re.compile(r"local\[(\d+)")
_ANY_PORT = 9


class ConnectCluster(SparkCluster):
    """As SparkCluster, for a Spark Connect session; without members= two, or one if Spark is a single process."""

    _sees_slots = False

    def __repr__(self) -> str:
        return f"ConnectCluster({self.spark.client.host!r}, members={self.members}, workers={self.workers})"

    def _check_session(self) -> None:
        if not is_connect(self.spark):
            raise JobDefinitionError(f"ConnectCluster needs a Spark Connect session, got {type(self.spark).__name__}")
        if self.spark.is_stopped:
            raise ResourcesError("the Spark Connect session has been stopped; make a new one")

    def _size(self, members: int | None, workers: int | None) -> Size:
        cores = self._cores_of_one_process()
        if members is None and cores is not None:
            return Size(1, cores if workers is None else workers)
        return Size(2 if members is None else members, 1 if workers is None else workers)

    def _require_slots(self) -> None:
        """Only a server that is a single process tells its slots; elsewhere members that do not come say so."""
        cores = self._cores_of_one_process()
        if cores is not None and cores < self.members:
            raise ResourcesError(
                f"{self.members} Spark slots are needed, one for each member, but the Connect server has {cores}. Ask "
                "for fewer members=, or start it with more cores"
            )

    def _sent_modules(self) -> set[str]:
        return set()

    def _jobs(self) -> SparkJobs:
        return ConnectJobs(self.spark)

    def _host(self) -> str:
        """The address by which this host reaches the server."""
        if self.host is not None:
            return self.host
        return address_towards(self.spark.client.host)

    def _bind(self) -> str | None:
        return None

    def _cores_of_one_process(self) -> int | None:
        found = _LOCAL_MASTER.match(str(self.spark.conf.get("spark.master", "")))
        return None if found is None else int(found[1])


class ConnectJobs(SparkJobs):
    """MemberCarrier: members as operations of a Spark Connect session, found again by their tags."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark

    def cancel(self, group: str) -> None:
        """Interrupt the operation of a member."""
        try:
            self._spark.interruptTag(group)
        except Exception as error:  # the session was stopped: its operations have ended
            logger.debug("cannot interrupt %s: %s", group, error)

    def _submit(self, group: str, description: str, task: MemberTask) -> None:
        self._spark.addTag(group)  # of this thread
        self._spark.range(0, 1, 1, 1).mapInArrow(member_function(task), RESULT_SCHEMA).toArrow()

    @property
    def _is_stopped(self) -> bool:
        return bool(self._spark.is_stopped)


def address_towards(host: str) -> str:
    """Return the address of this host on the network on which it reaches another. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, _ANY_PORT))
        except OSError as error:
            raise ResourcesError(f"the Spark Connect server {host} cannot be found: {error}") from error
        return str(probe.getsockname()[0])


def is_on_this_host(spark: Any) -> bool:
    """Is the server of a Connect session on this host?"""
    try:
        return ip_address(socket.gethostbyname(spark.client.host)).is_loopback
    except OSError:
        return False

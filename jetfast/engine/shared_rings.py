"""Rings of bytes in memory that this process shares with another of this host: without a name, gone with both of them.

    the writer   makes the memory, seals its size, and hands the descriptor over a Unix socket
    the reader   maps it only if it is sealed, since who may cut it off could kill whoever reads on

Nothing is left of a process that is killed: the memory has no name, and its descriptor is closed once it is handed
over.
"""

import mmap
import os
import socket

from jetfast.errors import ProtocolError
from jetfast.kernels.byte_rings import RING_HEAD_BYTES, RingReader, RingWriter

try:
    from fcntl import F_ADD_SEALS, F_GET_SEALS, F_SEAL_GROW, F_SEAL_SEAL, F_SEAL_SHRINK, fcntl
    from os import MFD_ALLOW_SEALING, MFD_CLOEXEC, memfd_create
except ImportError:  # not Linux
    _CAN_SHARE = False
else:
    _CAN_SHARE = True

_CAPACITY_MAX = 1 << 30


def can_share(connected: socket.socket) -> bool:
    """Can the process at the other end of a socket be handed memory?"""
    return _CAN_SHARE and connected.family == socket.AF_UNIX


def make_ring(capacity: int) -> tuple[RingWriter, int]:
    """Return a ring of so many bytes (a power of two) and the descriptor of its memory, which the caller closes.

    Raises OSError where the system gives no memory or no descriptor.
    """
    size = RING_HEAD_BYTES + capacity
    descriptor = memfd_create("jetfast-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, size)
        fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
        return RingWriter(mmap.mmap(descriptor, size)), descriptor
    except BaseException:
        os.close(descriptor)
        raise


def map_ring(descriptor: int) -> RingReader:
    """Return the reading end of a ring that a peer has made. Raises ProtocolError if it is none, or might shrink."""
    size = os.fstat(descriptor).st_size
    try:
        sealed = fcntl(descriptor, F_GET_SEALS) & F_SEAL_SHRINK
        if not sealed or size > RING_HEAD_BYTES + _CAPACITY_MAX:
            raise ValueError(f"it has {size} bytes and is {'sealed' if sealed else 'not sealed'}")
        return RingReader(mmap.mmap(descriptor, size))
    except (OSError, ValueError) as error:
        raise ProtocolError(f"the peer's memory cannot be shared: {error}") from error

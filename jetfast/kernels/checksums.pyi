"""Types of checksums.pyx: checksums of bytes, for what is stored."""

from typing_extensions import Buffer

def crc32c(data: Buffer, crc: int = 0) -> int: ...

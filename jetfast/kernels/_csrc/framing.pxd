# Declarations of csrc/jetfast/framing.hpp
from libc.stdint cimport int64_t, uint8_t
from libcpp.memory cimport shared_ptr
from libcpp.vector cimport vector

from jetfast.kernels._csrc.arena cimport Arena
from jetfast.kernels._csrc.arrow_c_data cimport ColumnType
from jetfast.kernels._csrc.batch cimport Rows
from jetfast.kernels._csrc.sent_columns cimport ReceivedColumns, SentColumns


cdef extern from "jetfast/framing.hpp" namespace "jetfast" nogil:
    cdef struct MessagePiece:
        const void* bytes
        int64_t size

    cdef cppclass Message:
        Message() except +
        vector[int64_t] header
        vector[MessagePiece] pieces

    cdef struct OpaqueBytes:
        const void* bytes
        int64_t size

    Message encode_rows(Arena& arena, const Rows& rows, const vector[OpaqueBytes]& opaque, SentColumns* sent) except +
    Rows decode_rows(Arena& arena, const vector[ColumnType]& types, const uint8_t* bytes, int64_t size,
                     const shared_ptr[const void]& owner, ReceivedColumns* received) except +

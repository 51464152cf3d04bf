# Declarations of csrc/jetfast/sent_columns.hpp
cdef extern from "jetfast/sent_columns.hpp" namespace "jetfast" nogil:
    cdef cppclass SentColumns:
        SentColumns() except +
        void settle() noexcept

    cdef cppclass ReceivedColumns:
        ReceivedColumns() except +

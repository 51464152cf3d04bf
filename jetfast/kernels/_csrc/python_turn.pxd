# Declares csrc/jetfast/python_turn.hpp.


cdef extern from "jetfast/python_turn.hpp" namespace "jetfast" nogil:
    cppclass PythonTurn:
        void join() noexcept
        void leave() noexcept
        void give() noexcept

"""Coalescing the watermarks of many inputs into one (SEMANTICS 1.5)."""

from libc.stdint cimport int64_t

from jetfast.kernels._csrc cimport watermark_coalescer as cpp

from jetfast.types import Signal

cdef object ACTIVE = Signal.ACTIVE
cdef object IDLE = Signal.IDLE


cdef tuple as_tuple(cpp.Forwarded forwarded):
    if not (forwarded.active or forwarded.has_watermark or forwarded.idle):
        return ()
    cdef list leaving = []
    if forwarded.active:
        leaving.append(ACTIVE)
    if forwarded.has_watermark:
        leaving.append(forwarded.watermark)
    if forwarded.idle:
        leaving.append(IDLE)
    return tuple(leaving)


cdef class WatermarkCoalescer:
    """The least watermark of the inputs that are neither idle nor done.

    Each observation returns what is forwarded because of it, in order: watermarks as int (microseconds, strictly
    increasing), Signal.IDLE when the last awake input has turned idle, Signal.ACTIVE when one wakes after that.

    Parameters
    ----------
    input_count : int, at least 1

    Raises
    ------
    ValueError : a watermark that is not above the input's last one, anything after `observe_done`; the input is named
    IndexError : no such input
    """

    cdef cpp.WatermarkCoalescer* coalescer

    def __cinit__(self, Py_ssize_t input_count):
        if input_count < 1:
            raise ValueError(f"input_count must be at least 1, got {input_count}")
        self.coalescer = new cpp.WatermarkCoalescer(input_count)

    def __dealloc__(self):
        del self.coalescer

    cdef size_t checked(self, Py_ssize_t input) except? 0:
        if input < 0 or <size_t>input >= self.coalescer.input_count():
            raise IndexError(f"there is no input {input}, only 0 to {self.coalescer.input_count() - 1}")
        return input

    cdef size_t live(self, Py_ssize_t input, str what) except? 0:
        cdef size_t checked = self.checked(input)
        if self.coalescer.is_done(checked):
            raise ValueError(f"input {input}: {what} after it was done")
        return checked

    @property
    def watermark(self):
        """The last watermark forwarded; MIN_TIME before the first."""
        return self.coalescer.watermark()

    @property
    def idle(self):
        """Was the last thing that left an idle message?"""
        return self.coalescer.idle()

    def observe_watermark(self, Py_ssize_t input, int64_t value):
        cdef size_t live = self.live(input, "a watermark")
        if value <= self.coalescer.input_watermark(live):
            raise ValueError(
                f"input {input}: watermark {value} is not above its last one, {self.coalescer.input_watermark(live)}"
            )
        return as_tuple(self.coalescer.observe_watermark(live, value))

    def observe_idle(self, Py_ssize_t input):
        return as_tuple(self.coalescer.observe_idle(self.live(input, "an idle message")))

    def observe_active(self, Py_ssize_t input):
        return as_tuple(self.coalescer.observe_active(self.live(input, "an active message")))

    def observe_rows(self, Py_ssize_t input):
        return as_tuple(self.coalescer.observe_active(self.live(input, "rows")))

    def observe_done(self, Py_ssize_t input):
        return as_tuple(self.coalescer.observe_done(self.live(input, "done")))

    def input_watermark(self, Py_ssize_t input):
        """The last watermark of one input; MIN_TIME before the first."""
        return self.coalescer.input_watermark(self.checked(input))

    def is_idle(self, Py_ssize_t input):
        return self.coalescer.is_idle(self.checked(input))

    def is_done(self, Py_ssize_t input):
        return self.coalescer.is_done(self.checked(input))

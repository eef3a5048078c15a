"""Operations that were started and may still be running."""
from __future__ import annotations

from typing import Callable, Optional

from ._library import HANDLE, Error, call, milliseconds, number

# Works that are not known to be done. They hold their arrays, also when the program has dropped the work.
_pending: dict[int, Work] = {}
_MANY = 64


class Work:
    """What a verb returns with async_op=True. wait() gives its result; arrays must not be touched before."""

    def __init__(self, result, arrays: tuple) -> None:
        self._handle = HANDLE(0)
        self._arrays: Optional[tuple] = arrays
        self._result = result
        self._error: Optional[Error] = None
        self._source = -1

    def wait(self, timeout: Optional[float] = None):
        """Blocks until this rank's arrays hold the result, and returns that. Raises the error of the operation, each time.

        timeout: the longest time without progress, in seconds; when it has passed, the group is closed with Timeout.
        """
        if self._arrays is not None:
            self._end(lambda: call.work_wait(self._handle, milliseconds(timeout)))
        if self._error is not None:
            raise self._error
        return self._result

    def is_completed(self) -> bool:
        """Makes possible progress without waiting. True when it is done or has failed."""
        if self._arrays is None:
            return True
        done = 1
        def test() -> bool:
            nonlocal done
            done = number(call.work_test, self._handle)
            return done != 0
        self._end(test)
        return done != 0

    @property
    def source(self) -> int:
        """The rank of the world that a finished recv came from; -1 for other works."""
        return self._source

    def _end(self, act: Callable) -> None:
        try:
            if act() is False:
                return
        except Error as error:
            self._error = error
        self._source = number(call.work_source, self._handle)
        call.work_free(self._handle)
        _pending.pop(self._handle.value, None)
        self._arrays = None


def started(work: Work) -> Work:
    """To be called when the operation has begun: keeps the work until it is done."""
    if len(_pending) >= _MANY:
        for other in list(_pending.values()):
            other.is_completed()
    _pending[work._handle.value] = work
    return work

"""SIGTERM and SIGINT as a request to stop, which all ranks follow between two steps."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any

from tfhybrid import distributed
from tfhybrid.core import native
from tfhybrid.job import current_job
from tfhybrid.job.watch import LINGER_SECONDS
from tfhybrid.optimizers.fit_state import StopRequests

_DEFAULTS: dict[int, Any] = {
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGINT: signal.default_int_handler,
}


class StopSignals:
    """Handlers that turn the first SIGTERM or SIGINT of this process into a request to stop.

    A second signal has its usual effect. Handlers that the program installed stay. Outside the main
    thread nothing is installed, because Python allows no handlers there.

    Args:
        requests: Requests to stop of the optimizer's step, which sends them to the other ranks.
    """

    def __init__(self, requests: StopRequests) -> None:
        self._requests = requests
        self._taken: list[int] = []
        self._received: int | None = None
        self._process = os.getpid()

    def take(self) -> None:
        """Installs handlers of SIGTERM and SIGINT that request a stop between two steps.

        A handler of the user stays. Does nothing on other threads than the main one.
        """
        if threading.current_thread() is not threading.main_thread():
            return
        for number, default in _DEFAULTS.items():
            handler = signal.getsignal(number)
            left_over = getattr(handler, "__func__", None) is StopSignals._receive
            if handler == default or left_over:  # a `fit` that raised left its handler installed
                signal.signal(number, self._receive)
                self._taken.append(number)

    def give_back(self) -> None:
        """Restores the default handlers, and the job's delay after SIGTERM; withdraws the request.

        Only the main thread may call it if `take` has installed handlers.

        Raises:
            NotInitializedError: The job has ended.
        """
        for number in self._taken:
            signal.signal(number, _DEFAULTS[number])
        if signal.SIGTERM in self._taken and current_job().watch is not None:
            native.linger_after_sigterm(LINGER_SECONDS)
        self._taken = []
        self._requests.withdraw()

    def after_step(self) -> int | None:
        """Returns the signal that a rank received before this step, or `None`.

        All ranks return a signal after the same step, without an additional message: the one that
        this rank received, or SIGTERM if only others received one.
        """
        return self._number() if self._requests.any_rank else None

    def at_end(self) -> int | None:
        """Returns the number of the signal that a rank has received, or `None` if no rank has.

        Every rank must call it, and gets a signal if any rank has received one: its own, or SIGTERM
        if only others received one.
        """
        with distributed.call("callbacks.Checkpoint at the end of training"):
            received = distributed.allgather_object(self._received)
        return self._number() if any(number is not None for number in received) else None

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        signal.signal(number, _DEFAULTS[number])
        if os.getpid() != self._process:  # a child process, such as one that reads data
            os.kill(os.getpid(), number)
            return
        self._received = number
        self._requests.request()

    def _number(self) -> int:
        return signal.SIGTERM if self._received is None else self._received

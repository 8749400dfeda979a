"""What a rank under observation does wrong, each in its own way."""

import ctypes
import os
import signal
import threading


def misbehave(fault, collective):
    """Does not return. `collective`: calls one that the other ranks do not call."""
    if fault == "loop":
        while True:
            pass
    elif fault == "gil":
        ctypes.PyDLL(None).sleep(3600)  # does not release the interpreter's lock
    elif fault == "lock":
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
    elif fault == "collective":
        collective()
    elif fault == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)

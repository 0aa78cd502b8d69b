"""A server whose engine fails in one step as soon as a file exists.

`python -m tests.support.doomed FILE`: "lost" in the file raises the error of a lost device, "hangs" blocks
the step.
"""

import sys
import time
from pathlib import Path

import engine.executors as executors
from server.settings import ServerSettings
from server.supervisor import serve


class AcceleratorError(RuntimeError):
    """An error of the same name as torch's."""


def doomed(bundle, placement, real=executors.OPENERS["onnx"]):
    """Open executors whose steps call `fail`."""
    opened = real(bundle, placement)
    for executor in opened:

        def stepper(make=executor.stepper):
            made = make()

            def launch(*args, launch=made.launch, **kwargs):
                fail(Path(sys.argv[1]))
                return launch(*args, **kwargs)

            made.launch = launch
            return made

        executor.stepper = stepper
    return opened


def fail(file):
    """Delete the file, if it exists, and fail in the way that it names."""
    try:
        fault = file.read_text("utf-8")
        file.unlink()
    except FileNotFoundError:
        return
    if fault == "lost":
        raise AcceleratorError("CUDA error: an illegal memory access was encountered")
    time.sleep(600)


executors.OPENERS["onnx"] = doomed  # in every process, as each imports this

if __name__ == "__main__":
    sys.exit(serve(ServerSettings()))

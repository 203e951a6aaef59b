"""`python -m ferroflow`, for a program that ends successfully after a number of steps: CORPUS_STEPS, or without a limit if it is
0.

The last line of the output is the number of steps, which `run.py` reads.
"""

import atexit
import os
import sys
import threading

import ferroflow
from ferroflow import __main__ as runner
from ferroflow import server

STEPS_MAX = int(os.environ.get("CORPUS_STEPS", "0"))


class Counter:
    """Counts the steps of all sessions of this process, and ends it after the last allowed one."""

    def __init__(self):
        self.steps = 0
        self._lock = threading.Lock()

    def count(self):
        with self._lock:
            self.steps += 1
            if self.steps == STEPS_MAX:
                self.tell()
                server.finish_all()
                os._exit(0)

    def tell(self):
        sys.stderr.flush()
        print(f"\ncorpus: {self.steps} steps", flush=True)


def install(counter):
    """Installs the counter on `Session.run` once TensorFlow is loaded."""
    patch = ferroflow.patch

    def patch_and_count():
        patch()
        from tensorflow.python.client import session

        run = session.BaseSession.run

        def run_and_count(self, *args, **kwargs):
            result = run(self, *args, **kwargs)
            counter.count()
            return result

        session.BaseSession.run = run_and_count
        atexit.register(counter.tell)

    ferroflow.patch = patch_and_count


def bring_back_scipy_misc():
    """Gives `scipy.misc` the image functions that SciPy has removed and old programs use."""
    import importlib.util

    if importlib.util.find_spec("scipy") is None:
        return
    import numpy as np
    import scipy.misc
    from PIL import Image

    def imread(name, flatten=False, mode=None):
        return np.asarray(Image.open(name).convert("F" if flatten else mode or "RGB"))

    def bytes_of(array):
        array = np.asarray(array)
        low, high = float(array.min()), float(array.max())
        return array if array.dtype == np.uint8 else ((array - low) * (255 / ((high - low) or 1)) + 0.5).astype(np.uint8)

    def imsave(name, array, format=None):
        Image.fromarray(bytes_of(array).squeeze()).save(name, format)

    def imresize(array, size, interp="bilinear", mode=None):
        height, width = (int(one * size) for one in array.shape[:2]) if np.isscalar(size) else size[:2]
        return np.asarray(Image.fromarray(bytes_of(array), mode).resize((width, height), getattr(Image, interp.upper())))

    vars(scipy.misc).update(imread=imread, imsave=imsave, imresize=imresize)


if __name__ == "__main__":
    bring_back_scipy_misc()
    install(Counter())
    sys.exit(runner.main())

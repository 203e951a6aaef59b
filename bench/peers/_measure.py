"""What the Python peers do alike: they read the batch, train on it, and say how many steps a second they make.

`PROGRAM MODEL BATCH_DIRECTORY` answers as the Rust peers do: see measure/src/lib.rs.
"""
import pathlib
import sys
import time

import numpy as np

BATCH, PIXELS, CLASSES = 100, 784, 10
WARM_UP_STEPS = 20


def task():
    """Returns the model's name, the images and the labels."""
    model, directory = sys.argv[1], pathlib.Path(sys.argv[2])
    images = np.fromfile(directory / "images.f32", "<f4").reshape(BATCH, PIXELS)
    return model, images, np.fromfile(directory / "labels.u8", np.uint8).astype(np.int64)


def measure(step):
    """Runs a step, which returns its loss, as often as the standard input asks for."""
    losses = [float(step()) for _ in range(WARM_UP_STEPS)]
    print(losses[0], losses[-1], flush=True)
    for line in sys.stdin:
        seconds, steps, start = float(line), 0, time.perf_counter()
        while time.perf_counter() - start < seconds:
            step()
            steps += 1
        print(steps / (time.perf_counter() - start), flush=True)

"""Compares input pipelines with tf.data: the same dataset graph on the same files, in turns; records per second, and CPU per
record.

Run it with `cargo xtask bench data [-- CASE…]`, which builds the example `step_rate` that runs our pipelines. A step draws a
batch.
"""
import os
import pathlib
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np  # noqa: E402
import _figures  # noqa: E402
import _report  # noqa: E402
from _processes import TICK, BenchError, example, run_part  # noqa: E402
from core import Steps, check, rate, step_rate_arguments, tf  # noqa: E402

SECONDS = _figures.seconds(2)
ROUNDS = _figures.rounds(5)
FILES, RECORDS = 4, 2500
IMAGES, SIDE = 200, 160
# Nothing in a pipeline depends on timing, so both sides do the same work.
SEED = 7


def write_examples(directory):
    """Writes files of examples, each with some numbers, a string and a label."""
    random = np.random.RandomState(SEED)
    names = []
    for file in range(FILES):
        names.append(os.path.join(directory, f"examples-{file}.tfrecord"))
        with tf.io.TFRecordWriter(names[-1]) as writer:
            for _ in range(RECORDS):
                feature = {
                    "x": tf.train.Feature(float_list=tf.train.FloatList(value=random.randn(16))),
                    "ids": tf.train.Feature(int64_list=tf.train.Int64List(value=random.randint(0, 1000, [4]))),
                    "name": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"a name of some length"])),
                    "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[random.randint(0, 10)])),
                }
                writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
    return names


def examples(directory):
    specification = {"x": tf.io.FixedLenFeature([16], tf.float32), "ids": tf.io.FixedLenFeature([4], tf.int64),
                     "name": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
    records = tf.data.TFRecordDataset(write_examples(directory)).repeat().shuffle(1000, seed=SEED)
    parsed = records.batch(100, drop_remainder=True).map(lambda batch: tf.io.parse_example(batch, specification))
    return parsed.prefetch(2), lambda batch: [batch["x"], batch["ids"], batch["label"]], 100


def lines(directory):
    random = np.random.RandomState(SEED)
    names = []
    for file in range(FILES):
        names.append(os.path.join(directory, f"rows-{file}.csv"))
        rows = [",".join([*(f"{x:.4f}" for x in random.randn(8)), str(random.randint(100)), "word"]) for _ in range(RECORDS)]
        pathlib.Path(names[-1]).write_text("\n".join(rows) + "\n")
    rows = tf.data.TextLineDataset(names).repeat().shuffle(1000, seed=SEED)
    defaults = [0.0] * 8 + [tf.constant(0, tf.int64), ""]
    parsed = rows.map(lambda line: tf.io.decode_csv(line, defaults)).batch(100, drop_remainder=True)
    return parsed.prefetch(2), lambda *columns: list(columns[:9]), 100


def images(directory):
    random = np.random.RandomState(SEED)
    name = os.path.join(directory, "images.tfrecord")
    picture = tf.placeholder(tf.uint8, [SIDE, SIDE, 3])
    encoded = tf.io.encode_jpeg(picture)
    across = np.linspace(0, 4 * np.pi, SIDE)
    with tf.Session() as session, tf.io.TFRecordWriter(name) as writer:
        for _ in range(IMAGES):
            # Waves with some noise, which compress about as well as photographs.
            waves = np.sin(across[:, None, None] * random.rand(3) + across[None, :, None] * random.rand(3))
            pixels = np.clip(128 + 90 * waves + 12 * random.randn(SIDE, SIDE, 3), 0, 255).astype(np.uint8)
            writer.write(session.run(encoded, {picture: pixels}))
    decode = lambda record: tf.image.resize_images(tf.image.decode_jpeg(record, channels=3), [96, 96])
    parsed = tf.data.TFRecordDataset(name).repeat().map(decode, num_parallel_calls=2).batch(16, drop_remainder=True)
    return parsed.prefetch(2), lambda batch: [batch], 16


# name: (the pipeline, the part of an element that is checked and its number of records; the least ratio)
CASES = {
    "TFRecords of examples, batch 100": (examples, 2.0),
    "CSV lines, batch 100": (lines, 2.0),
    "JPEG images of 160x160, batch 16": (images, 1.0),
}


def built(build, directory):
    """Builds a case in the default graph; returns the fetches of a step, its initializer, and the number of records in a step."""
    dataset, numbers, count = build(directory)
    iterator = tf.data.make_initializable_iterator(dataset)
    element = iterator.get_next()
    parts = numbers(*element) if isinstance(element, tuple) else numbers(element)
    total = tf.add_n([tf.reduce_sum(tf.cast(part, tf.float32)) for part in parts])
    return total, iterator.initializer, count


class Meter:
    """Measures the cost of steps: their rate, and the CPU of a process."""

    def __init__(self, run, cpu, count):
        self.run, self.cpu, self.count = run, cpu, count
        self.samples = []

    def turn(self):
        before = self.cpu()
        records = self.run(SECONDS) * self.count
        # The CPU of a turn is for about as many records as its rate implies.
        self.samples.append({"rate": records, "cpu_us": 1e6 * (self.cpu() - before) / (records * SECONDS)})

    def summary(self):
        # The first round warms up.
        return _figures.summary(self.samples[1:])


def cpu_of(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def measure(name, build, bar, binary, directory):
    graph = tf.Graph()
    with graph.as_default():
        total, init, count = built(build, directory)
        command = [binary, *step_rate_arguments(graph, {"feeds": {}, "fetches": [total], "targets": []}, None, directory),
                   "--init", init.name]
        with tf.Session(graph=graph) as session:
            session.run(init)
            step = session.make_callable(total)
            theirs_first, ours_first = step(), check(command)
            if not np.allclose(ours_first, theirs_first, rtol=1e-3):
                raise BenchError(f"{name}: the first batch gives {ours_first}, TensorFlow's {theirs_first}")
            with Steps(command) as steps:
                theirs = Meter(lambda seconds: rate(step, seconds), time.process_time, count)
                ours = Meter(steps.rate, lambda: cpu_of(steps.process.pid), count)
                for _ in range(ROUNDS + 1):
                    theirs.turn()
                    ours.turn()
    theirs, ours = theirs.summary(), ours.summary()
    return {"case": name, "unit": "records/s", "ours": ours, "tensorflow": theirs, "bar": bar,
            **_figures.spread(theirs["rates"], ours["rates"]),
            "cpu_ratio": _figures.share(ours["cpu_us"], theirs["cpu_us"])}


def main():
    binary = example("step_rate")
    wanted = sys.argv[1:]
    chosen = {name: case for name, case in CASES.items() if not wanted or any(part in name for part in wanted)}
    if not chosen:
        raise BenchError(f"no case is named so; there are: {', '.join(CASES)}")
    print(_report.machine_line(SECONDS, ROUNDS), flush=True)
    for name, (build, bar) in chosen.items():
        with tempfile.TemporaryDirectory() as directory:
            result = measure(name, build, bar, binary, directory)
        theirs, ours = result["tensorflow"], result["ours"]
        print(f"{name:36} {theirs['rate']:10,.0f} {ours['rate']:10,.0f} records/s  ratio {result['ratio']:5.2f} "
              f"({result['ratio_min']:.2f}-{result['ratio_max']:.2f}; bar {bar})  "
              f"CPU {theirs['cpu_us']:.2f} {ours['cpu_us']:.2f} us a record", flush=True)
        _report.write("data", [result], SECONDS, ROUNDS)


if __name__ == "__main__":
    run_part(main)

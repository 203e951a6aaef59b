"""Generates the input data of the corpus programs, in the formats of the public data sets that they were written for."""

import gzip
import io
import pathlib
import random
import struct
import tarfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
WORDS = "the of to and in a is that for it was on with as by at from his an were are which this be had or not have one five going hardware american britain".split()


def mnist(directory):
    """The project's digits, repeated to the size of the full set."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, count in (("train", 60000), ("t10k", 10000)):
        for kind, dims in (("images-idx3", (28, 28)), ("labels-idx1", ())):
            own = gzip.decompress((ROOT / "crates" / "digits" / "mnist" / f"{name}-{kind}-ubyte.gz").read_bytes())
            values = np.frombuffer(own, np.uint8, -1, 8 + 4 * len(dims)).reshape((-1, *dims))
            values = np.concatenate([values] * -(-count // len(values)))[:count]
            head = struct.pack(f">{2 + len(dims)}I", 2048 + 1 + len(dims), count, *dims)
            data = head + values.tobytes()
            (directory / f"{name}-{kind}-ubyte").write_bytes(data)
            with gzip.open(directory / f"{name}-{kind}-ubyte.gz", "wb", compresslevel=1) as file:
                file.write(data)


def criteo(directory):
    """Rows of clicks as `label field:value …`, 39 fields."""
    directory.mkdir(parents=True, exist_ok=True)
    numbers = random.Random(1)
    for name, rows in (("tr", 600), ("va", 200), ("te", 200)):
        with open(directory / f"{name}0.libsvm", "w") as file:
            for _ in range(rows):
                fields = " ".join(f"{10 * field + numbers.randrange(10)}:{numbers.random():.4f}" for field in range(39))
                file.write(f"{numbers.randrange(2)} {fields}\n")


def ptb(directory):
    """Sentences of the Penn Treebank's form."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, lines in (("train", 3000), ("valid", 300), ("test", 300)):
        (directory / f"ptb.{name}.txt").write_text("".join(f" {' '.join(sentence)} \n" for sentence in sentences(lines)))


def sentences(lines, seed=1):
    numbers = random.Random(seed)
    for _ in range(lines):
        yield numbers.choices(WORDS, k=numbers.randrange(4, 20))


def text(path):
    """A text of words in one line each."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(" ".join(sentence) + "\n" for sentence in sentences(4000)))


def text8(path):
    """text8.zip: a file of words."""
    import zipfile

    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        numbers = random.Random(1)
        words = WORDS + [f"word{index}" for index in range(300)]
        archive.writestr("text8", " ".join(numbers.choices(words, k=120000)))


def translation(directory):
    """Pairs of sentences with their vocabularies."""
    directory.mkdir(parents=True, exist_ok=True)
    for language in ("vi", "en"):
        (directory / f"vocab.{language}").write_text("\n".join(["<unk>", "<s>", "</s>", *WORDS]) + "\n")
        for name, lines in (("train", 2000), ("tst2012", 100), ("tst2013", 100)):
            (directory / f"{name}.{language}").write_text("".join(" ".join(one) + "\n" for one in sentences(lines, seed=len(name))))


def census(directory):
    """Rows of the census of incomes."""
    directory.mkdir(parents=True, exist_ok=True)
    numbers = random.Random(1)
    for name, rows in (("adult.data", 800), ("adult.test", 200)):
        with open(directory / name, "w") as file:
            for _ in range(rows):
                pick = numbers.choice
                file.write(",".join(str(value) for value in (
                    numbers.randrange(17, 80), pick(["Private", "State-gov", "Self-emp-inc"]), numbers.randrange(10000, 400000),
                    pick(["Bachelors", "HS-grad", "Masters"]), numbers.randrange(1, 16),
                    pick(["Never-married", "Divorced", "Married-civ-spouse"]), pick(["Tech-support", "Sales", "Craft-repair"]),
                    pick(["Husband", "Wife", "Unmarried"]), pick(["White", "Black", "Other"]), pick(["Female", "Male"]),
                    numbers.randrange(0, 9000), numbers.randrange(0, 2000), numbers.randrange(20, 60),
                    pick(["United-States", "Cuba", "Mexico"]), pick(["<=50K", ">50K"]))) + "\n")


def cifar10_binary(directory):
    """Batches of CIFAR-10 in its binary form."""
    numbers = np.random.RandomState(1)
    directory = directory / "cifar-10-batches-bin"
    directory.mkdir(parents=True, exist_ok=True)
    for name in [f"data_batch_{number}.bin" for number in range(1, 6)] + ["test_batch.bin"]:
        rows = numbers.randint(0, 256, (1000, 3073)).astype(np.uint8)
        rows[:, 0] %= 10
        (directory / name).write_bytes(rows.tobytes())
    with tarfile.open(directory.parent / "cifar-10-binary.tar.gz", "w:gz") as archive:
        archive.add(directory, "cifar-10-batches-bin")


def flowers(directory):
    """TFRecords of JPEG images with labels, as slim's `flowers`."""
    from PIL import Image
    import tensorflow as tf

    directory.mkdir(parents=True, exist_ok=True)
    numbers = np.random.RandomState(1)

    def feature(**kind):
        return tf.train.Feature(**{name: type_(value=[value]) for name, (type_, value) in kind.items()})

    for split in ("train", "validation"):
        for shard in range(5):
            with tf.io.TFRecordWriter(str(directory / f"flowers_{split}_{shard:05}-of-00005.tfrecord")) as writer:
                for _ in range(20):
                    file = io.BytesIO()
                    Image.fromarray(numbers.randint(0, 256, (64, 64, 3)).astype(np.uint8)).save(file, "JPEG")
                    writer.write(tf.train.Example(features=tf.train.Features(feature={
                        "image/encoded": feature(bytes_list=(tf.train.BytesList, file.getvalue())),
                        "image/format": feature(bytes_list=(tf.train.BytesList, b"jpg")),
                        "image/class/label": feature(int64_list=(tf.train.Int64List, int(numbers.randint(5)))),
                        "image/height": feature(int64_list=(tf.train.Int64List, 64)),
                        "image/width": feature(int64_list=(tf.train.Int64List, 64)),
                    })).SerializeToString())
    (directory / "labels.txt").write_text("0:daisy\n1:dandelion\n2:roses\n3:sunflowers\n4:tulips\n")


def movielens(directory):
    """Ratings of MovieLens's form."""
    directory.mkdir(parents=True, exist_ok=True)
    numbers = random.Random(1)
    rows = [(user, item, numbers.randrange(1, 6), 978300000 + numbers.randrange(10**6))
            for user in range(1, 101) for item in numbers.sample(range(1, 301), 30)]
    (directory / "ratings.dat").write_text("".join("::".join(map(str, row)) + "\n" for row in rows))
    (directory / "u.data").write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))
    (directory / "ratings.csv").write_text("userId,movieId,rating,timestamp\n" + "".join(",".join(map(str, row)) + "\n" for row in rows))


def iris(directory):
    """Measurements of flowers of three kinds."""
    directory.mkdir(parents=True, exist_ok=True)
    numbers = random.Random(1)
    for name, rows in (("iris_training.csv", 120), ("iris_test.csv", 30)):
        lines = [f"{rows},4,setosa,versicolor,virginica"]
        for row in range(rows):
            lines.append(",".join([f"{row % 3 + 2 + numbers.random():.1f}" for _ in range(4)] + [str(row % 3)]))
        (directory / name).write_text("\n".join(lines) + "\n")


def directory(path):
    """An empty directory."""
    path.mkdir(parents=True, exist_ok=True)


GENERATORS = {function.__name__: function for function in (
    mnist, criteo, ptb, text, text8, translation, census, cifar10_binary, flowers, movielens, iris, directory)}

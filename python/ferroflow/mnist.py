"""The MNIST reader of TensorFlow 1's `tensorflow.examples.tutorials.mnist.input_data`."""

import collections
import gzip
import os
import pathlib
import sys

import numpy as np

Datasets = collections.namedtuple("Datasets", ["train", "validation", "test"])

FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def read_data_sets(train_dir, fake_data=False, one_hot=False, dtype=None, reshape=True, validation_size=5000, seed=None,
                   source_url=None):
    """Returns the digits of `train_dir`, or the bundled ones if it has none."""
    del source_url
    if fake_data:
        empty = DataSet(np.zeros((0, 28, 28, 1), np.uint8), np.zeros(0, np.uint8), one_hot, dtype, reshape, seed)
        return Datasets(train=empty, validation=empty, test=empty)
    directory = find_directory(train_dir)
    train_images, train_labels, test_images, test_labels = (read_idx(directory, name) for name in FILES)
    train_images = train_images[..., np.newaxis]
    test_images = test_images[..., np.newaxis]
    if not 0 <= validation_size <= len(train_images):
        raise ValueError(f"Validation size should be between 0 and {len(train_images)}. Received: {validation_size}.")

    def part(images, labels):
        return DataSet(images, labels, one_hot, dtype, reshape, seed)

    return Datasets(
        train=part(train_images[validation_size:], train_labels[validation_size:]),
        validation=part(train_images[:validation_size], train_labels[:validation_size]),
        test=part(test_images, test_labels))


class DataSet:
    """Images and labels, returned in shuffled batches."""

    def __init__(self, images, labels, one_hot=False, dtype=None, reshape=True, seed=None):
        name = getattr(dtype, "name", "float32") if dtype is not None else "float32"
        if reshape:
            images = images.reshape(len(images), int(np.prod(images.shape[1:])))
        if name == "float32":
            images = images.astype(np.float32) * np.float32(1.0 / 255.0)
        elif name != "uint8":
            raise TypeError(f"Invalid image dtype {dtype!r}, expected uint8 or float32")
        self._images = images
        self._labels = dense_to_one_hot(labels, 10) if one_hot else labels
        self._random = np.random.RandomState(seed)
        self._index_in_epoch = 0
        self._epochs_completed = 0

    images = property(lambda self: self._images)
    labels = property(lambda self: self._labels)
    num_examples = property(lambda self: len(self._images))
    epochs_completed = property(lambda self: self._epochs_completed)

    def next_batch(self, batch_size, fake_data=False, shuffle=True):
        """Returns the next `batch_size` images and labels; a batch at the end of an epoch continues into the next one."""
        del fake_data
        if batch_size > self.num_examples:
            raise ValueError(f"a batch of {batch_size} from {self.num_examples} examples")
        if self._index_in_epoch == 0 and self._epochs_completed == 0 and shuffle:
            self._shuffle()
        start = self._index_in_epoch
        if start + batch_size <= self.num_examples:
            self._index_in_epoch += batch_size
            return self._images[start:self._index_in_epoch], self._labels[start:self._index_in_epoch]
        images, labels = self._images[start:], self._labels[start:]
        self._epochs_completed += 1
        if shuffle:
            self._shuffle()
        self._index_in_epoch = batch_size - len(images)
        return (np.concatenate([images, self._images[:self._index_in_epoch]]),
                np.concatenate([labels, self._labels[:self._index_in_epoch]]))

    def _shuffle(self):
        order = self._random.permutation(self.num_examples)
        self._images = self._images[order]
        self._labels = self._labels[order]


def dense_to_one_hot(labels, num_classes):
    """Returns one-hot rows of float64, as TensorFlow 1's function of this name does."""
    return np.eye(num_classes)[labels]


def find_directory(train_dir):
    given = pathlib.Path(train_dir)
    if all(find_file(given, name) for name in FILES):
        return given
    own = os.environ.get("FERROFLOW_MNIST")
    own = pathlib.Path(own) if own else pathlib.Path(__file__).resolve().parent.parent.parent / "crates" / "digits" / "mnist"
    if all(find_file(own, name) for name in FILES):
        print(f"ferroflow: {train_dir} does not hold the four MNIST files: using the digits in {own}", file=sys.stderr)
        return own
    raise FileNotFoundError(f"neither {given} nor {own} holds the four MNIST files {', '.join(FILES)} (or with .gz)")


def find_file(directory, name):
    for path in (directory / name, directory / (name + ".gz")):
        if path.is_file():
            return path
    return None


def read_idx(directory, name):
    """Returns the array of an idx file of bytes. A truncated file, or one of another kind, is an error that names it."""
    path = find_file(directory, name)
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    expected_ndims = 3 if "idx3" in name else 1
    if len(data) < 4 + 4 * expected_ndims or data[:3] != b"\0\0\x08" or data[3] != expected_ndims:
        raise ValueError(f"{path} is not an idx file of {expected_ndims} dimensions of bytes")
    dims = np.frombuffer(data, ">u4", expected_ndims, 4).astype(np.int64)
    body = np.frombuffer(data, np.uint8, -1, 4 + 4 * expected_ndims)
    if body.size != int(np.prod(dims)):
        raise ValueError(f"{path} should hold {int(np.prod(dims))} bytes of data and holds {body.size}")
    return body.reshape(dims)

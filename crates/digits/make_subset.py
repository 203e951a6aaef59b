"""Writes crates/digits/mnist from the full MNIST set: python crates/digits/make_subset.py DIRECTORY_WITH_THE_FOUR_IDX_FILES"""

import gzip
import pathlib
import struct
import sys

# The training digits come first in the file as they are; of the test digits every fourth is taken, because the two
# halves of that file were written by different groups of people.
TRAIN = range(0, 15000)
TEST = range(0, 10000, 4)


def read(directory, name):
    path = directory / name
    if path.exists():
        return path.read_bytes()
    return gzip.decompress((directory / (name + ".gz")).read_bytes())


def subset(data, chosen):
    """Returns the idx file that holds the chosen items of another one."""
    ndims = data[3]
    dims = struct.unpack(f">{ndims}I", data[4:4 + 4 * ndims])
    header = 4 + 4 * ndims
    size = (len(data) - header) // dims[0]
    items = b"".join(data[header + i * size:header + (i + 1) * size] for i in chosen)
    return data[:4] + struct.pack(f">{ndims}I", len(chosen), *dims[1:]) + items


def main():
    source = pathlib.Path(sys.argv[1])
    target = pathlib.Path(__file__).parent / "mnist"
    target.mkdir(exist_ok=True)
    for part, chosen in (("train", TRAIN), ("t10k", TEST)):
        for kind in ("images-idx3", "labels-idx1"):
            name = f"{part}-{kind}-ubyte"
            with open(target / (name + ".gz"), "wb") as file:
                # No name and no time in the header, so that the same digits give the same file.
                with gzip.GzipFile("", "wb", 9, file, mtime=0) as out:
                    out.write(subset(read(source, name), chosen))


if __name__ == "__main__":
    main()

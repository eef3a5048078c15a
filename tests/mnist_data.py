"""The first images of MNIST or, without it, of Debian's Fashion-MNIST, as small data sets for tests."""
import gzip
import os
import pathlib
import struct

FASHION = pathlib.Path("/usr/share/datasets/fashion-mnist")


def source():
    places = [pathlib.Path(os.environ.get("LOCKSTEP_DATA") or "/nowhere") / "mnist", FASHION]
    for place in places:
        if (place / "train-images-idx3-ubyte.gz").exists():
            return place
    raise FileNotFoundError(f"no images in {places}: install the Debian package dataset-fashion-mnist")


def cut(name, count, target, pack):
    """Writes the first `count` items of an idx file."""
    with gzip.open(source() / (name + ".gz")) as file:
        magic, = struct.unpack(">I", file.read(4))
        dims = struct.unpack(f">{magic & 0xff}I", file.read(4 * (magic & 0xff)))
        size = 28 * 28 if len(dims) == 3 else 1
        content = struct.pack(f">I{len(dims)}I", magic, count, *dims[1:]) + file.read(count * size)
    if pack:
        (target / (name + ".gz")).write_bytes(gzip.compress(content))
    else:
        (target / name).write_bytes(content)


def cut_all(target, train, test):
    for name, count in (("train-images-idx3-ubyte", train), ("train-labels-idx1-ubyte", train),
                        ("t10k-images-idx3-ubyte", test), ("t10k-labels-idx1-ubyte", test)):
        cut(name, count, target, pack=False)

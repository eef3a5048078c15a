"""The first images of CIFAR-10 from $LOCKSTEP_DATA/cifar10 or, without it, of Debian's Fashion-MNIST in CIFAR-10's form, as small data
sets for tests."""
import gzip
import os
import pathlib

import mnist_data

RECORD = 1 + 3072


def cifar(name, count):
    """The first records of a real file, or None."""
    place = pathlib.Path(os.environ.get("LOCKSTEP_DATA") or "/nowhere") / "cifar10"
    for path, open_file in ((place / name, open), (place / (name + ".gz"), gzip.open)):
        if path.exists():
            with open_file(path, "rb") as file:
                return file.read(count * RECORD)
    return None


def fashion(prefix, count):
    """Grey images in a frame of two black pixels, in all three channels."""
    with gzip.open(mnist_data.FASHION / f"{prefix}-images-idx3-ubyte.gz") as images, \
         gzip.open(mnist_data.FASHION / f"{prefix}-labels-idx1-ubyte.gz") as labels:
        images.read(16)
        labels.read(8)
        content = bytearray()
        for _ in range(count):
            rows = [b"\0\0" + images.read(28) + b"\0\0" for _ in range(28)]
            channel = bytes(64) + b"".join(rows) + bytes(64)
            content += labels.read(1) + 3 * channel
        return bytes(content)


def cut_all(target, train, test):
    """Writes data_batch_1.bin and test_batch.bin with so many images each."""
    for name, prefix, count in (("data_batch_1.bin", "train", train), ("test_batch.bin", "t10k", test)):
        content = cifar(name, count) or fashion(prefix, count)
        assert len(content) == count * RECORD, f"{name} has fewer than {count} images"
        (target / name).write_bytes(content)

"""scripts/download, with archives of this test's own in place of those on the network.

    download_test.py scripts/download
"""
import hashlib
import io
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import unittest

DOWNLOAD = sys.argv.pop()
FILES = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]


def archive(path, files):
    """A .tar.gz as the real one: everything in one folder. Returns its SHA-256."""
    with tarfile.open(path, "w:gz") as tar:
        for name in files:
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            info.size = len(name)
            tar.addfile(info, io.BytesIO(name.encode()))
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Download(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.target = self.root / "new" / "cifar10"
        self.archive = self.root / "archive.tar.gz"

    def download(self, *arguments):
        return subprocess.run([DOWNLOAD, *map(str, arguments)], capture_output=True, text=True, timeout=600)

    def fetch(self, sha256, url=None):
        return self.download("cifar10", "--url", url or f"file://{self.archive}", "--sha256", sha256, self.target)

    def assert_nothing_came(self, done, why):
        self.assertEqual(done.returncode, 1)
        self.assertIn(why, done.stderr)
        self.assertEqual(os.listdir(self.target), [])

    def test_fetches_checks_and_unpacks(self):
        sha256 = archive(self.archive, FILES + ["readme.html"])
        done = self.fetch(sha256)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(os.listdir(self.target)), sorted(FILES))
        self.assertEqual((self.target / "test_batch.bin").read_text(), "test_batch.bin")
        self.archive.unlink()
        done = self.fetch(sha256)
        self.assertEqual((done.returncode, done.stdout), (0, f"download: {self.target} has cifar10\n"))

    def test_leaves_packed_files_alone(self):
        self.target.mkdir(parents=True)
        for name in FILES:
            (self.target / (name + ".gz")).write_text("mine")
        self.assertEqual(self.fetch("0" * 64, "file:///nowhere").returncode, 0)

    def test_another_archive_is_refused(self):
        archive(self.archive, FILES)
        self.assert_nothing_came(self.fetch("0" * 64), "expected " + "0" * 64)

    def test_an_archive_that_lacks_a_file_is_refused(self):
        self.assert_nothing_came(self.fetch(archive(self.archive, FILES[:-1])), "has no test_batch.bin")

    def test_what_is_no_archive_is_refused(self):
        self.archive.write_text("<html>")
        self.assert_nothing_came(self.fetch(hashlib.sha256(b"<html>").hexdigest()), "no archive that tar can unpack")

    def test_a_text_is_taken_as_it_is(self):
        text = self.root / "text"
        text.write_text("To be")
        done = self.download("tinyshakespeare", "--url", f"file://{text}", "--sha256", hashlib.sha256(b"To be").hexdigest(), self.target)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(os.listdir(self.target), ["input.txt"])
        self.assertEqual((self.target / "input.txt").read_text(), "To be")

    def test_says_that_nothing_came(self):
        self.assert_nothing_came(self.fetch("0" * 64, "file:///nowhere.tar.gz"), "file:///nowhere.tar.gz did not come")

    def test_usage(self):
        for arguments in ((), ("imagenet",), ("cifar10", "--url"), ("cifar10", "a", "b")):
            done = self.download(*arguments)
            self.assertEqual(done.returncode, 64)
            self.assertIn("scripts/download cifar10|cifar100|tinyshakespeare [FOLDER]", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)

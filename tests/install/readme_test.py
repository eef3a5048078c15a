"""The README's way from a clone to an installed Lockstep, as typed: ./train, then cmake --install. Once with every optional package
that this machine has, and once without each of them and without all.

    python3 readme_test.py SOURCE_FOLDER WORK_FOLDER
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from mnist_data import cut_all  # noqa: E402

WORK = pathlib.Path(sys.argv.pop())
SOURCE = pathlib.Path(sys.argv.pop())
CLONE = WORK / "clone"

# What hides an optional package from CMake, and the module that is then not built.
OPTIONAL = {
    "openmpi": (["-DLOCKSTEP_MPICXX_openmpi=/bin/false"], "lockstep_mpi_openmpi.so"),
    "mpich": (["-DLOCKSTEP_MPICXX_mpich=/bin/false"], "lockstep_mpi_mpich.so"),
    "gloo": (["-DLOCKSTEP_GLOO_LIBRARY="], "lockstep_gloo.so"),
}


def make_clone():
    """The working tree as a clone would have it, beside the packages that scripts/setup has installed."""
    shutil.rmtree(WORK, ignore_errors=True)
    listed = subprocess.run(["git", "-C", SOURCE, "ls-files", "-z", "--cached", "--others", "--exclude-standard"], capture_output=True,
                            text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (SOURCE / name).is_file():
            (CLONE / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(SOURCE / name, CLONE / name)
    if (SOURCE / ".deps").exists():
        (CLONE / ".deps").symlink_to((SOURCE / ".deps").resolve())


class Readme(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        make_clone()
        cls.readme = (CLONE / "README.md").read_text()

    def in_clone(self, *command):
        result = subprocess.run(list(map(str, command)), cwd=CLONE, capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 0, f"{command}:\n{result.stdout[-4000:]}\n{result.stderr[-4000:]}")
        return result.stdout

    def installed_modules(self, name):
        """Runs the README's installation command; the modules that it has put below the prefix."""
        command = re.search(r"^(cmake --install build) --prefix \S+", self.readme, re.M)
        self.assertTrue(command, "the README says how to install")
        prefix = WORK / f"prefix_{name}"
        self.in_clone(*command[1].split(), "--prefix", prefix)
        self.assertTrue((prefix / "bin/lockstep").exists())
        return {path.name for path in prefix.glob("lib*/**/lockstep_*.so")}

    def test_train_then_install_works_with_and_without_each_optional_package(self):
        data = WORK / "mnist"
        data.mkdir()
        cut_all(data, 256, 128)
        self.assertRegex(self.readme, r"(?m)^\./train\b")
        trained = self.in_clone("./train", "--epochs", "1", "--data", data, "--save-dir", WORK)
        self.assertIn("all ranks hold bit-identical parameters", trained)
        there = self.installed_modules("all")
        self.assertLessEqual(there, {module for _, module in OPTIONAL.values()})
        for name in [*OPTIONAL, "any"]:
            hidden = {name: OPTIONAL[name]} if name in OPTIONAL else OPTIONAL
            with self.subTest(without=name):
                shutil.rmtree(CLONE / "build/modules", ignore_errors=True)
                fresh = ["-ULOCKSTEP_MPICXX_*", "-ULOCKSTEP_GLOO_*"]
                self.in_clone("cmake", "-B", "build", *fresh, *[word for words, _ in hidden.values() for word in words])
                self.in_clone("./train", "--help")  # builds what ./train builds
                self.assertEqual(self.installed_modules(name), there - {module for _, module in hidden.values()})


if __name__ == "__main__":
    unittest.main()

"""The Python wheel as its users have it: packed out of a build folder, installed into a new virtual environment, and used by what
python/README.md and docs/horovod.md say. Nothing of the tree is in the paths then.

    python tests/install/wheel_test.py SOURCE_FOLDER BUILD_FOLDER WORK_FOLDER

The interpreter that runs this needs pip and the packages that the programs import; the environment finds these packages there. Without
the torch of the build, the programs of torch are left out, and a line says so.
"""
import importlib.metadata
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import unittest
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import cifar_data  # noqa: E402

WORK = pathlib.Path(sys.argv.pop()).resolve()
BUILD = pathlib.Path(sys.argv.pop()).resolve()
SOURCE = pathlib.Path(sys.argv.pop()).resolve()
VENV, DIST = WORK / "venv", WORK / "dist"
# What a user's shell has: nothing that leads to the tree.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("LOCKSTEP_", "PYTHON"))} | {
    "PATH": f"{VENV / 'bin'}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
SHORT = {"--epochs": "1", "--images": "32", "--batch-size": "8", "--width": "8", "--workers": "0"}


def call(*command, **changes):
    """(exit status, output) of a command in the folder of the work, with the environment in front."""
    done = subprocess.run([str(word) for word in command], cwd=WORK, env=ENVIRONMENT | changes, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False, timeout=600)
    return done.returncode, done.stdout


def python(text, **changes):
    return call("python", "-c", text, **changes)


def torch_of_the_build():
    """"2.13", if this interpreter has that torch."""
    built = [match.group(1) for path in (BUILD / "library").glob("liblockstep_torch_*.so")
             if (match := re.search(r"torch_(\d+\.\d+)\.so$", path.name))]
    if not built or importlib.util.find_spec("torch") is None:
        return None
    return built[0] if importlib.metadata.version("torch").startswith(built[0] + ".") else None


def setUpModule():
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    status, output = call(SOURCE / "scripts/wheel", "--from", BUILD, DIST, LOCKSTEP_PYTHON=sys.executable)
    assert status == 0, output
    call(sys.executable, "-m", "venv", "--without-pip", VENV)
    inside = next(VENV.glob("lib/python3*/site-packages"))
    (inside / "packages.pth").write_text(sysconfig.get_path("purelib") + "\n")
    status, output = call(sys.executable, "-m", "pip", "--python", VENV / "bin/python", "install", "--disable-pip-version-check",
                          "--no-deps", "--no-index", next(DIST.glob("*.whl")))
    assert status == 0, output
    (WORK / "examples").symlink_to(SOURCE / "examples")
    (WORK / "data/cifar10").mkdir(parents=True)
    cifar_data.cut_all(WORK / "data/cifar10", 32, 0)


def blocks(page):
    """(language, text) of each block of code."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", (SOURCE / page).read_text(), re.M | re.S)


class Wheel(unittest.TestCase):
    def lines_run(self, commands):
        """Each command line, as a shell runs it; what follows # or "or:" is another way to say it."""
        for line in commands.splitlines():
            with self.subTest(line):
                status, output = call("bash", "-c", line.split("#")[0])
                self.assertEqual(status, 0, output)

    def test_1_has_what_it_says(self):
        made = list(DIST.glob("*.whl"))
        self.assertEqual(len(made), 1)
        self.assertRegex(made[0].name, r"^lockstep-\d+\.\d+\.\d+-py3-none-linux_\w+\.whl$")
        names = zipfile.ZipFile(made[0]).namelist()
        for wanted in (r"lockstep/lib/liblockstep_core\.so\.\d+\.\d+", r"lockstep/horovod/torch/__init__\.py", r"lockstep/py\.typed",
                       r"lockstep_torch_entry\.py", r"lockstep-.*\.data/scripts/lockstep", r"lockstep-.*\.dist-info/RECORD"):
            self.assertEqual(len([name for name in names if re.fullmatch(wanted, name)]), 1, f"{wanted} in {names}")
        self.assertFalse([name for name in names if "test" in name or "__pycache__" in name])
        status, output = python("import lockstep, lockstep.run as r; print(lockstep.__file__, lockstep._library._path(), r.command())")
        self.assertEqual((status, output.count(str(VENV))), (0, 3), output)

    def test_2_horovodrun(self):
        (WORK / "gathers.py").write_text("import lockstep, numpy\nlockstep.init()\n"
                                         "assert (lockstep.all_gather(numpy.array([lockstep.rank()])) == [[0], [1]]).all()\nlockstep.shutdown()\n")
        self.lines_run("horovodrun -np 2 python gathers.py")  # the README's programs are started by the other two
        self.assertIn("horovodrun", call("horovodrun", "--help")[1])

    def test_3_the_readme(self):
        torch = torch_of_the_build()
        found = blocks("python/README.md")
        programs = [(text, commands) for (language, text), (next_language, commands) in zip(found, found[1:])
                    if language == "python" and next_language == ""]  # a program, and how it is started
        self.assertEqual(len(programs), 2)
        for text, commands in programs:
            if "import torch" in text and not torch:
                print("no torch of the build's version: the README's program of torch is not run")
                continue
            (WORK / "train.py").write_text(text.replace("import lockstep.torch ", "# import lockstep.torch "))  # the wheel needs it not
            self.lines_run(commands)

    @unittest.skipUnless(torch_of_the_build(), "no torch of the build's version: no program of Horovod's interface is run")
    def test_4_the_example(self):
        path = "examples/python/horovod_torch.py"
        line = re.search(rf"^    (.* {path} .*)$", (SOURCE / path).read_text(), re.M).group(1)
        self.lines_run(f"{line} {' '.join(f'{name} {value}' for name, value in SHORT.items())}")

    def test_5_another_torch_is_refused_when_it_is_asked_for(self):
        stub = WORK / "stub/torch"
        (stub / "distributed").mkdir(parents=True)
        (stub / "__init__.py").write_text("__version__ = '2.99.0+cpu'\n")
        (stub / "distributed/__init__.py").write_text("")
        status, output = python("import torch, lockstep; print('both'); import lockstep.torch", PYTHONPATH=str(stub.parent))
        self.assertEqual(status, 1)
        self.assertIn("both\n", output)
        self.assertRegex(output, r"ImportError: lockstep\.torch was built for torch .*this is torch 2\.99\.0\+cpu; install a torch")

    def test_6_leaves_nothing(self):
        status, output = call(sys.executable, "-m", "pip", "--python", VENV / "bin/python", "uninstall", "--yes", "lockstep")
        self.assertEqual(status, 0, output)
        self.assertEqual([path for path in VENV.rglob("*") if re.search("lockstep|horovodrun", path.name)], [])


if __name__ == "__main__":
    unittest.main()

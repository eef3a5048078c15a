"""Makes the wheel of the package `lockstep`: pip's build backend (PEP 517), in the standard library.

    pip wheel --no-deps python                                              # configures and builds build-wheel/ first
    pip wheel --no-deps --config-settings=from=build python                 # out of a folder that is built: nothing is compiled
    CMAKE_ARGS="-DTorch_DIR=/path" pip wheel --no-deps python               # options of CMake, for the first way

A wheel is an archive of the package's Python, of what `cmake --install --component python` puts there, and of three text files that say
what it is. Nothing here uses Python's C interface, so one wheel serves every version of Python. The same files make the same bytes.
"""
from __future__ import annotations

import base64
import hashlib
import os
import pathlib
import re
import shlex
import subprocess
import sys
import sysconfig
import tempfile
import zipfile

try:
    import tomllib
except ModuleNotFoundError:  # before Python 3.11
    import tomli as tomllib

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
TARGETS = ("lockstep_core_shared", "lockstep_tensorflow", "lockstep_xla", "lockstep_torch", "lockstep_cli")
# hwloc's library is not on every machine; without it the launcher takes every CPU for a core.
OPTIONS = ("-DCMAKE_BUILD_TYPE=Release", "-DLOCKSTEP_BUILD_TESTS=OFF", "-DLOCKSTEP_BUILD_EXAMPLES=OFF", "-DLOCKSTEP_HWLOC_INCLUDE=no",
           "-DLOCKSTEP_HWLOC_LIBRARY=no")


class UnsupportedOperation(Exception):
    """What PEP 517 asks for where a hook cannot do its work."""


# ---- pip calls these

def build_wheel(wheel_directory, config_settings=None, metadata_directory=None) -> str:
    """Writes the wheel and returns its name."""
    given = (config_settings or {}).get("from")
    build = pathlib.Path(given).resolve() if given else built()
    name = f"{stem()}-{tag()}.whl"
    with tempfile.TemporaryDirectory() as stage:
        run("cmake", "--install", build, "--component", "python", "--strip", "--prefix", stage)
        contents = {**python_files(), **installed_files(pathlib.Path(stage)), **about()}
    if not any(name.endswith("/scripts/lockstep") for name in contents):
        raise FileNotFoundError(f"{build} has no command `lockstep` to pack: build its targets {', '.join(TARGETS)} first")
    write(pathlib.Path(wheel_directory) / name, contents)
    return name


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None) -> str:
    folder = pathlib.Path(metadata_directory) / f"{stem()}.dist-info"
    folder.mkdir(parents=True)
    for name, content in about().items():
        (folder.parent / name).write_bytes(content)
    return folder.name


def build_sdist(sdist_directory, config_settings=None) -> str:
    raise UnsupportedOperation("the sources of this package are the whole repository: build the wheel from a clone of it")


# ---- what a wheel holds: its name in the archive -> its bytes

def python_files() -> dict:
    found = [*sorted((HERE / "lockstep").rglob("*.py")), *sorted((HERE / "lockstep").rglob("py.typed")), HERE / "lockstep_torch_entry.py"]
    return {str(path.relative_to(HERE)): path.read_bytes() for path in found}


def installed_files(stage: pathlib.Path) -> dict:
    """A wheel has no links: a library lies there under the name by which other libraries ask for it."""
    libraries = sorted((stage / "lib").iterdir()) if (stage / "lib").exists() else []
    links = {path.resolve() for path in libraries if path.is_symlink()}
    found = {f"lockstep/lib/{path.name}": path.read_bytes() for path in libraries if path not in links}
    return found | {f"{stem()}.data/scripts/{path.name}": path.read_bytes() for path in sorted((stage / "bin").glob("*"))}


def about() -> dict:
    """METADATA, WHEEL and entry_points.txt."""
    project = described()
    lines = ["Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {version()}", f"Summary: {project['description']}",
             f"Requires-Python: {project['requires-python']}", *(f"Requires-Dist: {one}" for one in project["dependencies"]),
             "Description-Content-Type: text/markdown", "", (HERE / project["readme"]).read_text()]
    groups = {"console_scripts": project["scripts"], **project["entry-points"]}
    entries = [line for group, names in groups.items() for line in (f"[{group}]", *(f"{name} = {what}" for name, what in names.items()))]
    wheel = ["Wheel-Version: 1.0", "Generator: lockstep_wheel", "Root-Is-Purelib: false", f"Tag: {tag()}"]
    texts = {"METADATA": lines, "WHEEL": wheel, "entry_points.txt": entries}
    return {f"{stem()}.dist-info/{name}": ("\n".join(text) + "\n").encode() for name, text in texts.items()}


def described() -> dict:
    return tomllib.loads((HERE / "pyproject.toml").read_text())["project"]


def version() -> str:
    return re.search(r"project\(Lockstep VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text()).group(1)


def stem() -> str:
    return f"{described()['name']}-{version()}"


def tag() -> str:
    return "py3-none-" + re.sub(r"[-.]", "_", sysconfig.get_platform())


# ---- how it comes about

def built() -> pathlib.Path:
    """Builds in build-wheel/, as deep in the tree as build/, so that the compiler's cache knows what has been compiled there."""
    build = ROOT / "build-wheel"
    os.environ.setdefault("CCACHE_BASEDIR", str(ROOT))
    os.environ.setdefault("CCACHE_NOHASHDIR", "1")
    run("cmake", "-G", "Ninja", "-S", ROOT, "-B", build, *OPTIONS, *shlex.split(os.environ.get("CMAKE_ARGS", "")))
    run("cmake", "--build", build, "--target", *TARGETS)
    return build


def run(*command) -> None:
    subprocess.run([str(word) for word in command], stdout=sys.stderr, check=True)


def write(path: pathlib.Path, contents: dict) -> None:
    """The archive, with RECORD, a list of all files and their hashes, as its last file."""
    record = f"{stem()}.dist-info/RECORD"
    rows = []
    for name, content in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={digest},{len(content)}\n")
    everything = {**contents, record: "".join([*rows, f"{record},,\n"]).encode()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in everything.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if "/scripts/" in name or ".so" in name else 0o100644) << 16
            archive.writestr(entry, content)

"""What compat/tensorflow/c_api.h and compat/xla/ffi.h declare is what the installed TensorFlow and JAX have: tensorflow_headers.cpp and
xla_headers.cpp.

    .deps/venv_tensorflow/bin/python tests/python/tensorflow_headers_test.py g++
"""
import importlib.util
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent


def compiles(package, source):
    headers = pathlib.Path(importlib.util.find_spec(package).origin).parent / "include"
    return subprocess.run([sys.argv[1], "-std=c++20", "-fsyntax-only", f"-I{HERE.parents[1]}", "-isystem", str(headers),
                           str(HERE / source)], check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(not (compiles("tensorflow", "tensorflow_headers.cpp") and compiles("jaxlib", "xla_headers.cpp")))

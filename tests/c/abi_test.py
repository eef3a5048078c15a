"""The C interface's ABI is the one in abi.txt, its headers are C99 and C++, and the Fortran module has all of it.

    abi_test.py LIBRARY CC CXX
    abi_test.py LIBRARY CC CXX --write        # abi.txt anew: only lines may be added that LOCKSTEP_C_1 lacked when it was made

abi.txt has the exported symbols, the values of the enumerations, and the layouts of the structs. A program that was built
before relies on each line. New functions go into a LOCKSTEP_C_2 of lockstep/core.map.
"""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
ABI = pathlib.Path(__file__).with_name("abi.txt")
LIBRARY, CC, CXX = sys.argv[1:4]
STRICT = ["-Wall", "-Wextra", "-pedantic", "-Werror", "-I", str(ROOT)]
C99 = ["-std=c99", *STRICT]


def public_headers():
    """lockstep.h and what it includes; the other headers of the room are C++."""
    names = re.findall(r'#include "(lockstep/c/\w+\.h)"', (ROOT / "lockstep/c/lockstep.h").read_text())
    return [ROOT / "lockstep/c/lockstep.h"] + [ROOT / name for name in names]


def code_of(header):
    return re.sub(r"//[^\n]*", "", header.read_text())


CODE = "\n".join(code_of(header) for header in public_headers())
FUNCTIONS = re.findall(r"LOCKSTEP_C_API [^;(]*?(lockstep_\w+)\(", CODE)
ENUMS = re.findall(r"enum (lockstep_\w+) \{(.*?)\};", CODE, re.S)
STRUCTS = re.findall(r"typedef struct (lockstep_\w+) \{(.*?)\} \1;", CODE, re.S)


def run(*command, **options):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **options)


def compile_text(compiler, options, text):
    done = run(compiler, *options, "-fsyntax-only", "-", input=text)
    assert done.returncode == 0, f"{text}\n{done.stderr}"


def printed_by(text):
    """What a C program prints."""
    with tempfile.TemporaryDirectory() as folder:
        source, program = pathlib.Path(folder, "abi.c"), pathlib.Path(folder, "abi")
        source.write_text(text)
        done = run(CC, *C99, source, "-o", program)
        assert done.returncode == 0, done.stderr
        return run(program).stdout.splitlines()


def symbols():
    lines = run("nm", "-D", "--with-symbol-versions", "--defined-only", LIBRARY).stdout
    return re.findall(r" T (lockstep_\w+@@LOCKSTEP_C_\d+)$", lines, re.M)


def values_and_layouts():
    lines = [f'printf("value {name} %d\\n", (int){name});' for _, body in ENUMS for name in re.findall(r"LOCKSTEP_\w+", body)]
    lines += [f'printf("value {name} %lld\\n", (long long){name});' for name in ("LOCKSTEP_WORLD", "LOCKSTEP_ANY_SOURCE")]
    for struct, body in STRUCTS:
        lines.append(f'printf("struct {struct} %d bytes\\n", (int)sizeof({struct}));')
        for field in re.findall(r"(\w+);", body):
            lines.append(f'printf("field {struct}.{field} at %d\\n", (int)offsetof({struct}, {field}));')
    return printed_by('#include <stdio.h>\n#include "lockstep/c/lockstep.h"\nint main(void) {\n' + "\n".join(lines) + "\nreturn 0;\n}\n")


def abi():
    return sorted(f"symbol {symbol}" for symbol in symbols()) + values_and_layouts()


def examples():
    """(header, lines) of each paragraph of code in the headers' comments: indented by three spaces, with a statement."""
    for header in public_headers():
        for paragraph in re.split(r"^//$", header.read_text(), flags=re.M):
            lines = [line[5:] for line in paragraph.splitlines() if line.startswith("//   ")]
            if any(re.search(r"[;{}]$", line.split("  //")[0].rstrip()) for line in lines):
                yield header, lines


class Abi(unittest.TestCase):
    maxDiff = None

    def test_is_the_committed_one(self):
        self.assertEqual(abi(), ABI.read_text().splitlines())

    def test_every_function_is_exported_and_declared_once(self):
        self.assertEqual(sorted(FUNCTIONS), sorted(symbol.split("@")[0] for symbol in symbols()))
        self.assertGreater(len(FUNCTIONS), 60)


class Headers(unittest.TestCase):
    def test_each_alone_is_c99_and_cpp(self):
        for header in public_headers():
            text = f'#include "{header.relative_to(ROOT)}"\n#include "{header.relative_to(ROOT)}"\nint main(void) {{ return 0; }}\n'
            compile_text(CC, [*C99, "-x", "c"], text)
            for standard in ("c++11", "c++20"):
                compile_text(CXX, [f"-std={standard}", *STRICT, "-x", "c++"], text)

    def test_their_examples_are_c99_and_cpp(self):
        found = list(examples())
        self.assertEqual({header for header, _ in found}, set(public_headers()))
        for header, lines in found:
            text = "\n".join(["#include <stdio.h>", '#include "lockstep/c/lockstep.h"', "void fail(const char* why);",
                              "void save_and_leave(int peer);", "void compute_a_little(void);", "void example(void);",
                              "void example(void) {", *lines, "}", ""])
            options = ["-Wno-unused-variable", "-Wno-unused-but-set-variable"]
            with self.subTest(header.name):
                compile_text(CC, [*C99, *options, "-x", "c"], text)
                compile_text(CXX, ["-std=c++20", *STRICT, *options, "-x", "c++"], text)


class Fortran(unittest.TestCase):
    MODULE = (ROOT / "lockstep/c/lockstep.f90").read_text()

    def test_has_every_function(self):
        bound = re.findall(r"function (lockstep_\w+)\([^)]*\) &?\s*bind\(c\)", self.MODULE)
        self.assertEqual(sorted(bound), sorted(FUNCTIONS))

    def test_arguments_have_the_names_and_the_order_of_c(self):
        for name, arguments in re.findall(r"LOCKSTEP_C_API [^;(]*?(lockstep_\w+)\(([^;]*)\);", CODE):
            if "(*" in arguments:
                continue  # a pointer to a function
            here = re.search(rf"function {name}\(([^)]*)\)", self.MODULE).group(1)
            in_c = [] if arguments == "void" else [re.search(r"\w+$", argument.strip()).group() for argument in arguments.split(",")]
            self.assertEqual(re.findall(r"\w+", here), in_c, name)

    def test_has_every_value(self):
        constants = dict(re.findall(r"parameter :: (LOCKSTEP_\w+) = (-?\d+)", self.MODULE))
        in_c = dict(line.split()[1:] for line in values_and_layouts() if line.startswith("value "))
        self.assertEqual(constants, in_c)


if __name__ == "__main__":
    if sys.argv[4:] == ["--write"]:
        ABI.write_text("\n".join(abi()) + "\n")
    else:
        unittest.main(argv=sys.argv[:1])

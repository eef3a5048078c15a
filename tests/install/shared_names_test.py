"""liblockstep_core.so shows names of Lockstep that LOCKSTEP_PUBLIC marks, under its version, those of the C
interface under its own, and no others.

    shared_names_test.py LIBRARY ARCHIVE
"""
import re
import subprocess
import sys
import unittest

INNER = ["shared", "messages", "tcp", "mpi", "gloo", "algorithms", "trace"]  # namespaces of rooms that no program uses
NEEDED = ["lockstep::init_process_group(", "lockstep::comm::all_reduce(", "lockstep::Store::get(", "typeinfo for lockstep::Error",
          "lockstep::SafetensorsFile::"]


def names(*options):
    lines = subprocess.run(["nm", "-C", "--defined-only", *options], capture_output=True, text=True, check=True).stdout.split("\n")
    return [match.group(1) for line in lines if (match := re.match(r"[0-9a-f]+ [A-Zu-w] (.*)", line))]


class Names(unittest.TestCase):
    def setUp(self):
        self.shown = names("-D", "--with-symbol-versions", sys.argv[1])

    def test_each_is_ours_and_has_the_version(self):
        for name in self.shown:
            if re.match(r"LOCKSTEP_(0\.1|C_\d+)(@|$)|lockstep_\w+@@LOCKSTEP_C_\d+$", name):
                continue  # a version itself, or a function of the C interface, of which tests/c has the list
            self.assertRegex(name, r"@@LOCKSTEP_0\.1$")
            self.assertIn("lockstep::", name)

    def test_what_a_program_needs_is_there(self):
        for needed in NEEDED:
            self.assertTrue(any(needed in name for name in self.shown), needed)

    def test_inner_rooms_are_hidden_and_are_in_the_library(self):
        inner = re.compile(rf"^lockstep::({'|'.join(INNER)})::")
        self.assertEqual([name for name in self.shown if inner.search(name)], [])
        self.assertTrue(any(inner.search(name) for name in names(sys.argv[2])))  # so the line above can fail


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

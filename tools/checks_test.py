#!/usr/bin/env python3
"""The checks find what they are there to find. Run by CTest."""
import importlib.machinery
import importlib.util
import os
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

import check_clang
import check_layers
import check_size
import check_tests
import check_texts
import failed_output
import hung_tests
import sources


def load(name):
    """A tool whose file has no ending."""
    loader = importlib.machinery.SourceFileLoader(name, str(pathlib.Path(__file__).with_name(name)))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


def layers(path, *includes, text=""):
    path = pathlib.PurePosixPath(path)
    return [problem.split(": ", 1)[1] for problem in check_layers.check_file(path, {path: list(includes)}, text)]


class Lint(unittest.TestCase):
    def test_comments_and_layout_are_not_code(self):
        code = load("lint").code_of
        self.assertEqual(code("int a;  // x \"y\"\n/* b\n c */ f();\n"), "int a; f(); ".strip())
        self.assertEqual(code("int\n    b;"), code("int b;"))
        self.assertNotEqual(code("f();"), code("f();  // NOLINT(x)"))
        for kept in (r'char* s = "// no \" // ";', 'auto r = R"(// "raw" )";'):
            self.assertEqual(code(kept), kept)
        self.assertNotEqual(code('s = "a";'), code('s = "b";'))

    def test_clang_gets_our_c_and_cpp_alone(self):
        build = sources.ROOT / "build"
        files = ["lockstep/x.cpp", "tests/c/x.c", "lockstep/c/x.f90", "build/generated.cpp", "/usr/include/x.c"]
        entries = [{"directory": str(sources.ROOT), "file": file, "command": file} for file in files]
        self.assertEqual([str(path) for path in load("lint").commands_of(entries, build)], files[:2])


class FailedOutput(unittest.TestCase):
    def test_finds_what_failed(self):
        def entry(name, output, result):
            return (f'1/2 Test: {name}\nCommand: "x"\n"{name}" start time: now\nOutput:\n-----\n{output}\n<end of output>\n'
                    f'Test time = 1 sec\n-----\n{result}\n"{name}" end time: now\n')
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder) / "Testing/Temporary/LastTest.log"
            self.assertEqual(failed_output.failed_in(folder), [])
            log.parent.mkdir(parents=True)
            log.with_name("LastTestsFailed.log").write_text("1:a.b\n12:c/d\n3:e\n")
            log.write_text(entry("a.b", "fine", "Test Passed.") + entry("c/d", "1\n2\0", "Test Failed.") + entry("e", "", "Test Timeout.") +
                           entry("is to fail", "", "Test Failed."))
            self.assertEqual(failed_output.failed_in(folder), [("c/d", "1\n2\n"), ("e", "\n")])


class HungTests(unittest.TestCase):
    def test_shows_all_processes_of_a_test(self):
        """Its children, and one that has only its output. A second test within an inner ctest counts by itself."""
        with tempfile.TemporaryDirectory() as folder:
            inner = pathlib.Path(folder) / "inner"
            inner.mkdir()
            pathlib.Path(folder, "CTestTestfile.cmake").write_text(f'add_test(outer ctest --test-dir "{inner}")\n')
            (inner / "CTestTestfile.cmake").write_text('add_test(t sh -c "(setsid sleep 1001 &); sleep 1002 & sleep 1003; true")\n')
            with subprocess.Popen(["ctest", "--test-dir", folder], stdout=subprocess.DEVNULL) as ctest:
                found, sleeping = [], []
                try:
                    while len(sleeping) < 3:
                        self.assertIsNone(ctest.poll())
                        every = hung_tests.processes()
                        found = hung_tests.tests_below(os.getpid(), every)
                        sleeping = [pid for test in found for pid in hung_tests.processes_of(test, every)
                                    if hung_tests.command_of(pid).startswith("sleep 100")]
                        time.sleep(0.01)
                    self.assertEqual(len(found), 1)
                    self.assertRegex(hung_tests.command_of(found[0]), r"^\S*sh -c \(setsid")
                    self.assertEqual(sorted(map(hung_tests.command_of, sleeping)), ["sleep 1001", "sleep 1002", "sleep 1003"])
                    text = hung_tests.report(found[0], every, 0)
                    for pid in sleeping:
                        self.assertRegex(text, rf"{pid}: sleep 100.\n *thread {pid} sleep: S ")
                finally:
                    for pid in sleeping:
                        os.kill(pid, signal.SIGKILL)


class Layers(unittest.TestCase):
    def test_down_is_allowed(self):
        self.assertEqual(layers("lockstep/comm/work.h", '"lockstep/os/futex.h"', '"lockstep/comm/group.h"', "<vector>"), [])
        self.assertEqual(layers("lockstep/data/mnist.cpp", '"lockstep/formats/idx.h"', "<ATen/ATen.h>"), [])
        self.assertEqual(layers("cli/main.cpp", '"lockstep/launch/run.h"'), [])
        self.assertEqual(layers("lockstep/parallel/ddp/reducer.h", '"lockstep/parallel/mesh.h"'), [])

    def test_up_and_sideways_are_not(self):
        for path, included in [("os/futex.h", "comm/work.h"), ("comm/work.h", "launch/run.h"), ("comm/work.h", "formats/idx.h"),
                               ("parallel/ddp/reducer.h", "parallel/zero/stage.h"), ("base/str.h", "lockstep.h"),
                               ("base/str.h", "nowhere/x.h")]:
            self.assertEqual(len(layers("lockstep/" + path, f'"lockstep/{included}"')), 1, (path, included))
        self.assertEqual(len(layers("cli/main.cpp", '"lockstep/tensor/collectives.h"')), 1)
        self.assertEqual(len(layers("lockstep/comm/work.cpp", '"testing/ranks.h"')), 1)
        self.assertEqual(layers("lockstep/comm/work_test.cpp", '"testing/ranks.h"'), [])
        self.assertEqual(layers("lockstep/comm/work_ranks_test.cpp", '"lockstep/job/job.h"'), [])
        self.assertEqual(len(layers("lockstep/comm/work_test.cpp", '"lockstep/job/job.h"')), 1)

    def test_rooms_within_comm(self):
        for path, included in [("comm/trace/x.cpp", "comm/call.h"), ("comm/backends/tcp/mesh.h", "comm/backends/messages/link.h"),
                               ("comm/backends/registry.cpp", "comm/backends/nccl/backend.h"),
                               ("comm/backends/shared/x_test.cpp", "comm/backends/registry.h")]:
            self.assertEqual(layers("lockstep/" + path, f'"lockstep/{included}"'), [], (path, included))
        for path, included in [("comm/call.h", "comm/trace/rank_trace.h"), ("comm/backends/tcp/mesh.h", "comm/backends/mpi/links.h"),
                               ("comm/backends/shared/engine.h", "comm/backends/messages/link.h"),
                               ("comm/kernels/x.h", "comm/collectives/check.h"), ("comm/new_room/x.h", "comm/call.h")]:
            self.assertEqual(len(layers("lockstep/" + path, f'"lockstep/{included}"')), 1, (path, included))

    def test_rooms_within_parallel(self):
        for path, included in [("parallel/ddp/x.cpp", "parallel/gradients/bucket_plan.h"),
                               ("parallel/ddp/x.cpp", "parallel/gradients/hooks/comm_hook.h"),
                               ("parallel/gradients/x.cpp", "parallel/gradients/hooks/comm_hook.h"),
                               ("parallel/gradients/hooks/x.cpp", "parallel/gradients/gradient_slot.h"),
                               ("parallel/gradients/hooks/x_ranks_test.cpp", "parallel/ddp/reducer.h"),
                               ("parallel/replicas/x.cpp", "parallel/wrapper.h"), ("train/x.cpp", "parallel/ddp/reducer.h"),
                               ("parallel/ddp/x.cpp", "autograd/autocast.h"), ("compat/apex/amp.cpp", "amp/grad_scaler.h")]:
            self.assertEqual(layers("lockstep/" + path, f'"lockstep/{included}"'), [], (path, included))
        for path, included in [("parallel/gradients/x.cpp", "parallel/ddp/reducer.h"),
                               ("parallel/gradients/hooks/x.cpp", "parallel/ddp/reducer.h"),
                               ("parallel/replicas/x.cpp", "parallel/gradients/gradient_slot.h"),
                               ("parallel/wrapper.h", "parallel/gradients/gradient_slot.h"),
                               ("autograd/x.cpp", "parallel/ddp/reducer.h"), ("autograd/x.cpp", "amp/grad_scaler.h"),
                               ("parallel/new_room/x.h", "parallel/wrapper.h"),
                               ("comm/backends/new_room/x.h", "comm/call.h")]:
            self.assertEqual(len(layers("lockstep/" + path, f'"lockstep/{included}"')), 1, (path, included))

    def test_headers_that_have_a_place(self):
        self.assertEqual(len(layers("lockstep/comm/work.h", "<ATen/ATen.h>")), 1)
        self.assertEqual(len(layers("lockstep/comm/work.cpp", "<sys/mman.h>")), 1)
        self.assertEqual(len(layers("lockstep/tensor/x.h", "<torch/torch.h>")), 1)
        self.assertEqual(layers("lockstep/tensor/x.cpp", "<torch/torch.h>"), [])

    def test_words_that_have_a_place(self):
        for text in ("getenv(name)", "std::cerr << 1;", "std::exit(1);", "::abort();", "_exit(2);"):
            self.assertEqual(len(layers("lockstep/comm/work.cpp", text=text)), 1, text)
        for text in ("group.abort();", "void abort();", "snprintf(a)", "on_exit_do(x)"):
            self.assertEqual(layers("lockstep/comm/work.cpp", text=text), [], text)


class Size(unittest.TestCase):
    def lengths(self, text):
        return [(head.split("(")[0].split()[-1], last - first + 1) for first, last, head in check_size.functions(text)]

    def test_functions(self):
        self.assertEqual(self.lengths("namespace a {\nclass B : C {\n  int f() const {\n    if (x) {\n    }\n  }\n};\n}\n"), [("f", 4)])
        self.assertEqual(self.lengths('// f() {\nconst char* S = "{";\nint main() {\n}\n'), [("main", 2)])
        self.assertEqual(self.lengths("constexpr T X = f({\n  {1},\n});\nB::B(int a)\n    : a_{a} {\n  g([&] {\n  });\n}\n")[-1][1], 5)
        self.assertEqual(self.lengths("class A : public ::B {\n  void f() {\n  }\n};\n"), [("f", 2)])
        self.assertEqual(self.lengths("#define X \\\n  {\nvoid f() {\n  int a = 1'000;\n}\n"), [("f", 3)])


class Texts(unittest.TestCase):
    def problems(self, text):
        return [problem.split(": ")[1].split(" (")[0] for problem in check_texts.problems_of("x.cpp", text)]

    def test_texts_that_decide(self):
        for text in ('if (reason == "end of stream") f();', 'if ("a b" != x) f();', 'text.find("Mismatch: ")', 'x.starts_with("rank 1")',
                     "error.what() == x", "if (error.what().find(x))", "if (what.find(told(kind)) != npos)",
                     'constexpr std::string_view EXPECTS = " and expects ";\nreturn text.find(EXPECTS) != npos;',
                     'constexpr const char* READY = "ready, can read";\nreturn a == READY;',
                     'for (const char* known : {"Broken pipe", "x"}) {\n  if (text.find(known)) f();'):
            self.assertEqual(len(self.problems(text)), 1, text)

    def test_texts_that_do_not(self):
        for text in ('if (name == "tcp") f();', 'x.find(": ")', 'throw E(str("a b", x == y));', '// x == "a b"', 'x = "a b"; y.find(z);',
                     'log("a b: ", error.what());', 'f(a == b, "a b")'):
            self.assertEqual(self.problems(text), [], text)


class Tests(unittest.TestCase):
    def test_skips(self):
        self.assertTrue(check_tests.SKIP.search("GTEST_SKIP();"))
        self.assertFalse(check_tests.SKIP.search('GTEST_SKIP() << "no pidfd: " << kernel;'))
        self.assertTrue(check_tests.DISABLED.search("TEST(A, DISABLED_B) {"))

    def test_own_names(self):
        text = "namespace a {\nnamespace {\nconstexpr int N = 1;\nstruct Net : Module {\n  int inner = 2;\n};\nint sum(int x, const T& y) {\n}\nTEST(A, B) {\n"
        self.assertEqual(check_tests.own_names(text), {"a::N", "a::Net", "a::sum(int,const T&)"})

    def test_short_timeouts(self):
        text = "set_tests_properties(a PROPERTIES TIMEOUT 4800)\nset_tests_properties(b PROPERTIES LABELS c TIMEOUT 60)\nD DISCOVERY_TIMEOUT 60\n"
        self.assertEqual([problem.split(": ")[0] for problem in check_tests.short_timeouts("x", text)], ["x:2"])

    def test_short_guards(self):
        text = "run(timeout=3)\nrun(timeout=100)\nrun(timeout=600)\n\"--timeout=60s\"\n"
        self.assertEqual([problem.split(": ")[0] for problem in check_tests.short_guards("x", text)], ["x:2"])

    def test_there_twice(self):
        text = ("class A:\n  def f(self): pass\n  @f.setter\n  def f(self): pass\n  def g(self): pass\n  def g(self): pass\n"
                "class B:\n  def f(self): pass\nx = {1: 2, 'a': 3,\n 'a': 4, **y, **y, z: 1, z: 2}\n@skip\ndef g(): pass\n@skip\ndef g(): pass\n")
        self.assertEqual([problem.split(": ")[0] for problem in check_tests.there_twice("x", text)], ["x:14", "x:6", "x:10"])

    def test_foreign_options(self):
        headers = {"file": "h", "command": "g++ -O1 -fPIC -Wall -x c++-header -include /b/cmake_pch.hxx -o h.gch -c h"}
        same = {"file": "a.cpp", "command": "g++ -O1 -fPIC -Wno-shadow -DB -include /b/cmake_pch.hxx -o a.o -c a.cpp"}
        vector = {"file": "v.cpp", "command": "g++ -O1 -fPIC -mavx2 -include /b/cmake_pch.hxx -o v.o -c v.cpp"}
        alone = {"file": "w.cpp", "command": "g++ -O1 -fPIC -mavx2 -o w.o -c w.cpp"}
        problems = list(check_tests.foreign_options([same, vector, headers, alone]))
        self.assertEqual(len(problems), 1)
        self.assertRegex(problems[0], r"^v\.cpp: .*\(-mavx2\)")


class ClangCheck(unittest.TestCase):
    def test_what_only_gpp_knows_is_left_out(self):
        command = ("/usr/bin/env A=b ccache /usr/bin/c++ -DX=\\\"y\\\" -isystem /p/torch/include -O3 -fPIE -O1 --param=a=1 -Wall -fpch-preprocess "
                   "-include /b/cmake_pch.hxx -MD -MT a.o -MF a.o.d -o a.o -c a.cpp")
        words = check_clang.arguments_for_clang(command)
        self.assertEqual(words, ['-DX="y"', "-isystem", "/p/torch/include", "-fPIC", "-Wall", "-c", "a.cpp"])
        self.assertEqual(check_clang.torch_folders(words), ["-isystem", "/p/torch/include"])
        self.assertEqual(check_clang.torch_folders(["-isystem", "/p/other"]), [])
        self.assertTrue(check_clang.takes_precompiled(command))
        self.assertFalse(check_clang.takes_precompiled(command.replace("-include /b/cmake_pch.hxx", "-mavx2")))
        self.assertFalse(check_clang.takes_precompiled(command.replace("/p/torch/include", "/p/other")))

    def test_a_reference_to_what_is_gone(self):
        clang = check_clang.program()
        if not clang:
            self.skipTest("needs clang++")
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "a.cpp")
            for line, problems in (("int f() { const int& x = made()[1]; return x; }", 1), ("int f() { return made()[1]; }", 0)):
                file.write_text("#include <vector>\nstd::vector<int> made();\n" + line + "\n", encoding="utf-8")
                entry = {"file": str(file), "directory": folder, "command": f"/usr/bin/c++ -std=c++20 -Wall -o a.o -c {file}"}
                _, status, text = check_clang.read_by_clang(clang, entry, None)
                self.assertEqual(status != 0, problems == 1, text)
                self.assertEqual(text.count("dangling"), problems, text)


class Sources(unittest.TestCase):
    def test_hidden_text_keeps_its_lines(self):
        self.assertEqual(sources.blank_hidden('a /* b\n c */ "d\\"e" R"(f\n)" // g\nh').split(), ["a", "h"])
        self.assertEqual(sources.blank_hidden("/*\n\n*/x").count("\n"), 2)


if __name__ == "__main__":
    unittest.main()

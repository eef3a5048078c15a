// A fork server: a test binary that was loaded once and runs each test case in a copy of itself. Loading
// libtorch takes longer than most cases do, and CTest starts a process for every case.
//
//   CTest ── run_case BINARY ARGUMENTS ── arguments, environment, folder, three files ──▶ fork server
//               │                                                                             │ fork()
//               ◀──────────── exit status, when the case has ended ──────────── the case: main() goes on
//
// run_case (testing/run_case.cpp) is the target's CROSSCOMPILING_EMULATOR, so CTest needs to know nothing of
// it. It starts a fork server where none listens, and runs the binary itself where a copy would not do.
//
// The server has no threads, so a copy of it is whole. It ends after ten seconds without a case. A case that
// loses its run_case (CTest kills that after the test's timeout) is killed with its process group.
#pragma once

#include <string_view>

namespace lockstep::harness {

inline constexpr std::string_view FORK_SERVER_ARGUMENT =
    "--fork-server=";  // and the descriptor of its listening socket

// First in main(). A process that was started as a fork server stays in here, and each of its copies returns
// with the arguments of its case. In every other process it does nothing.
void serve_cases(int* argc, char*** argv);

// In a copy of a process that has loaded libtorch: when it exits, libtorch's static objects are not
// destroyed, which takes 100 ms, a hundred times as long as fork() does. Nor is GoogleTest's registry.
// Everything that was made since main() began is destroyed as ever, and so are all other static objects of
// this binary. Does nothing under a sanitizer, which has its say at the very end.
void spare_teardown_of_libraries();

}  // namespace lockstep::harness

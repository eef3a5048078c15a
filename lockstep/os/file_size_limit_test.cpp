#include "lockstep/os/file_size_limit.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/os/atomic_file.h"
#include "lockstep/os/child_process.h"
#include "lockstep/os/locked_file.h"
#include "lockstep/os/output_descriptor.h"
#include "lockstep/os/pipe.h"
#include "lockstep/os/shared_memory.h"
#include "testing/error_number.h"
#include "testing/temp_folder.h"

namespace lockstep {
namespace {

using testing::error_number_of;
using testing::TempFolder;

constexpr std::size_t LIMIT = 8192;

// The exit code of `body` in a process whose files may have LIMIT bytes; 128 and more: killed by a signal.
template <typename Body> int code_within_the_limit(Body body) {
  const pid_t child = fork_child([&] {
    const rlimit limit{LIMIT, LIMIT};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 99;
    return body();
  });
  return wait_exit(child).shell_code();
}

Fd file_in(const TempFolder& folder) { return Fd(open((folder / "file").c_str(), O_WRONLY | O_CREAT, 0600)); }

TEST(FileSizeLimit, IsTheKernels) {
  EXPECT_EQ(largest_file(), std::numeric_limits<std::size_t>::max());
  EXPECT_EQ(code_within_the_limit([] { return largest_file() == LIMIT ? 0 : 1; }), 0);
}

TEST(FileSizeLimit, EndsAProcessThatIsNotCareful) {
  const TempFolder folder;
  const std::string text(2 * LIMIT, 'x');
  EXPECT_EQ(code_within_the_limit([&] {
              const Fd file = file_in(folder);
              return ::write(file.get(), text.data(), LIMIT) == static_cast<ssize_t>(LIMIT) &&
                             ::write(file.get(), text.data(), 1) == 1
                         ? 1
                         : 2;
            }),
            128 + SIGXFSZ);
}

TEST(FileSizeLimit, IsAnErrorOfEveryWriterHere) {
  const TempFolder folder;
  const std::string text(LIMIT + 1, 'x');
  const auto bytes = std::as_bytes(std::span(text));
  EXPECT_EQ(code_within_the_limit([&] {
              const Fd file = file_in(folder);
              if (write_available(file.get(), text) != static_cast<long>(LIMIT)) return 1;
              return write_available(file.get(), "x") == -1 && errno == EFBIG ? 0 : 2;
            }),
            0);
  EXPECT_EQ(code_within_the_limit([&] {
              AtomicFile file(folder / "atomic");
              return error_number_of([&] { file.write(bytes); }) == EFBIG ? 0 : 1;
            }),
            0);
  EXPECT_EQ(code_within_the_limit([&] {
              const LockedFile file(folder / "locked");
              return error_number_of([&] { file.write_at(0, text); }) == EFBIG ? 0 : 1;
            }),
            0);
  EXPECT_EQ(code_within_the_limit(
                [&] { return error_number_of([] { SharedMemory::create(LIMIT + 1); }) == EFBIG ? 0 : 1; }),
            0);
}

TEST(FileSizeLimit, LeavesNoSignalBehind) {
  const TempFolder folder;
  const std::string text(LIMIT, 'x');
  EXPECT_EQ(code_within_the_limit([&] {
              const Fd file = file_in(folder);
              if (write_available(file.get(), text) != static_cast<long>(LIMIT)) return 1;
              write_available(file.get(), "x");
              sigset_t pending;
              sigset_t blocked;
              sigpending(&pending);
              pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
              return sigismember(&pending, SIGXFSZ) + sigismember(&blocked, SIGXFSZ);
            }),
            0);
}

}  // namespace
}  // namespace lockstep

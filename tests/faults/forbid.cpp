// Runs a program for which a filter of the kernel forbids some calls, as those of containers do. For
// containers_test.py.
//
//   forbid sched_getaffinity,memfd_create PROGRAM ARGUMENTS...
//
// The calls fail with EPERM, in the program and all that it starts. Exit code 2: the filter cannot be had.
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

namespace {

std::vector<unsigned> numbers_of(const std::string& names) {
  std::vector<unsigned> numbers;
  if (names.find("sched_getaffinity") != std::string::npos) numbers.push_back(SYS_sched_getaffinity);
  if (names.find("memfd_create") != std::string::npos) numbers.push_back(SYS_memfd_create);
  return numbers;
}

bool forbid(const std::vector<unsigned>& numbers) {
  std::vector<sock_filter> rules = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const unsigned number : numbers) {
    rules.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1));
    rules.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM));
  }
  rules.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog program = {static_cast<unsigned short>(rules.size()), rules.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

}  // namespace

int main(int argc, char** argv) {
  const auto numbers = numbers_of(argc > 2 ? argv[1] : "");
  if (numbers.empty() || !forbid(numbers)) {
    std::fputs("forbid: the calls cannot be forbidden\n", stderr);
    return 2;
  }
  execvp(argv[2], argv + 2);
  std::perror("forbid");
  return 2;
}

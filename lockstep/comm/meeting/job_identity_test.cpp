#include "lockstep/comm/meeting/job_identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>

#include "lockstep/base/str.h"
#include "lockstep/os/child_process.h"
#include "lockstep/os/pipe.h"
#include "lockstep/os/process.h"
#include "lockstep/os/process_table.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const JobFingerprint WHOLE_FINGERPRINT = {
    .size = 3, .source = "MPICH", .job = "host:1/0", .launcher = "process 7", .user = "1000"};

TEST(JobFingerprint, ArrivesAsItWasSent) {
  for (const JobFingerprint& sent :
       {WHOLE_FINGERPRINT, JobFingerprint{}, JobFingerprint{.size = 2, .user = "0"}}) {
    const JobFingerprint got = unpack_fingerprint(pack(sent));
    EXPECT_EQ(got.size, sent.size);
    EXPECT_EQ(got.source, sent.source);
    EXPECT_EQ(got.job, sent.job);
    EXPECT_EQ(got.launcher, sent.launcher);
    EXPECT_EQ(got.user, sent.user);
  }
}

TEST(JobFingerprint, OfAnythingElseHasNoLineBreaksAndEnds) {
  EXPECT_EQ(unpack_fingerprint("").size, 0);
  const JobFingerprint odd = unpack_fingerprint("x\ty\nz\t\t\t\t\t\t" + std::string(5000, 'a'));
  EXPECT_EQ(odd.size, 0);
  EXPECT_EQ(odd.source, "y\\x0az");
  EXPECT_LT(pack(unpack_fingerprint("1\t" + std::string(5000, 'a'))).size(), 300U);
}

TEST(JobFingerprint, EachPartThatBothKnowTellsJobsApart) {
  EXPECT_TRUE(is_same_job(WHOLE_FINGERPRINT, WHOLE_FINGERPRINT));
  EXPECT_TRUE(is_same_job(WHOLE_FINGERPRINT, {}));
  for (const auto& change : std::vector<void (*)(JobFingerprint&)>{
           [](JobFingerprint& job) { job.size = 4; }, [](JobFingerprint& job) { job.source = "Slurm"; },
           [](JobFingerprint& job) { job.job = "host:2/0"; },
           [](JobFingerprint& job) { job.launcher = "process 8"; },
           [](JobFingerprint& job) { job.user = "0"; }}) {
    JobFingerprint other = WHOLE_FINGERPRINT;
    change(other);
    EXPECT_FALSE(is_same_job(WHOLE_FINGERPRINT, other)) << describe(other);
    EXPECT_FALSE(is_same_job(other, WHOLE_FINGERPRINT)) << describe(other);
    EXPECT_NE(describe(WHOLE_FINGERPRINT), describe(other));
  }
}

TEST(JobFingerprint, IsDescribedInOneLine) {
  EXPECT_EQ(describe(WHOLE_FINGERPRINT), "3 ranks started by MPICH (job host:1/0, process 7, user 1000)");
  EXPECT_EQ(describe({.size = 2, .source = "by hand"}), "2 ranks started by hand");
}

TEST(ProcessTable, KnowsAncestorsAndNames) {
  const std::vector<pid_t> ancestors = ancestor_processes();
  ASSERT_FALSE(ancestors.empty());
  EXPECT_EQ(ancestors[0], parent_pid());
  for (std::size_t i = 1; i < ancestors.size(); ++i)
    EXPECT_EQ(process_stat(ancestors[i - 1]).parent, ancestors[i]);
  EXPECT_EQ(command_line(current_pid()), command_line());
}

// Imitates mpiexec.hydra: a rank gets one end of a socket pair that an ancestor made.
TEST(JobIdentity, OfMpichIsTheAncestorBehindItsSocket) {
  const SocketPair pair = make_packet_socket_pair();
  const std::string fd = std::to_string(pair.first.get());
  const auto launcher_of = [] {
    JobEnvironment place;
    place.source = Launcher::MPICH;
    return job_identity(place).launcher;
  };
  setenv("PMI_FD", fd.c_str(), 1);
  EXPECT_EQ(launcher_of(), "") << "a socket that this process has made is none of the launcher's";
  Pipe pipe = make_pipe();
  const pid_t made_by = current_pid();
  const pid_t child = fork_child([&] {
    const std::string said = launcher_of();
    return write(pipe.write.get(), said.data(), said.size()) == static_cast<ssize_t>(said.size()) ? 0 : 1;
  });
  pipe.write.reset();
  std::string said;
  while (read_available(pipe.read.get(), said) != ReadResult::END) {
  }
  EXPECT_EQ(wait_exit(child).shell_code(), 0);
  unsetenv("PMI_FD");
  EXPECT_THAT(said, AllOf(HasSubstr(str("process ", made_by, " started at tick ")), HasSubstr("namespace")));
}

}  // namespace
}  // namespace lockstep

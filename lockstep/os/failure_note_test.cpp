#include "lockstep/os/failure_note.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "lockstep/os/child_process.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::IsEmpty;

auto note(int rank, ErrorCode code, int culprit) {
  return AllOf(Field(&FailureNote::rank, rank), Field(&FailureNote::code, code),
               Field(&FailureNote::culprit, culprit));
}

// Runs `body` in a child that inherits the socket. `variable` is the launcher's environment variable.
void in_child(const std::string& variable, const std::function<void()>& body) {
  const pid_t child = fork_child([&] {
    putenv(const_cast<char*>(variable.c_str()));  // NOLINT: putenv's signature
    body();
    return 0;
  });
  EXPECT_TRUE(wait_exit(child).success());
}

TEST(FailureNotes, TellTheFirstFailureOfEachWorld) {
  FailureNotes notes;
  in_child(notes.variable(), [] {
    begin_failure_notes(3);
    note_failure(ErrorCode::PEER_LOST, 1);
    note_failure(ErrorCode::ABORTED, 2);
    clear_failure();
    clear_failure();
    note_failure(ErrorCode::TIMEOUT, FailureNote::SOMEBODY);
  });
  EXPECT_THAT(notes.read(),
              ElementsAre(note(3, ErrorCode::PEER_LOST, 1), note(3, ErrorCode::NONE, FailureNote::SOMEBODY),
                          note(3, ErrorCode::TIMEOUT, FailureNote::SOMEBODY)));
  EXPECT_THAT(notes.read(), IsEmpty());
}

TEST(FailureNotes, AreNotToldByWhoHasNotBegunNorByAFork) {
  FailureNotes notes;
  in_child(notes.variable(), [] {
    note_failure(ErrorCode::PEER_LOST, 1);
    begin_failure_notes(0);
    EXPECT_TRUE(wait_exit(fork_child([] {
                  note_failure(ErrorCode::PEER_LOST, 2);
                  return 0;
                })).success());
  });
  EXPECT_THAT(notes.read(), IsEmpty());
}

TEST(FailureNotes, LeaveADescriptorAloneThatIsSomethingElseByNow) {
  FailureNotes notes;
  const std::string path = ::testing::TempDir() + "failure_note_test";
  in_child(notes.variable(), [&] {
    const int file = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (dup2(file, notes.for_ranks()) < 0) _exit(1);
    begin_failure_notes(0);
    note_failure(ErrorCode::PEER_LOST, 1);
    struct stat status = {};
    if (fstat(file, &status) != 0 || status.st_size != 0) _exit(1);
  });
  unlink(path.c_str());
  EXPECT_THAT(notes.read(), IsEmpty());
}

TEST(FailureNotes, DoNotEndARankWhoseLauncherIsGone) {
  auto notes = std::make_unique<FailureNotes>();
  const Fd theirs(dup(notes->for_ranks()));
  const std::string variable = notes->variable();
  in_child(variable, [&] {
    begin_failure_notes(0);
    notes.reset();
    note_failure(ErrorCode::PEER_LOST, 1);
  });
}

TEST(FailureNotes, OfAThousandRanksAllArriveWhileTheLauncherReads) {
  FailureNotes notes;
  constexpr int RANKS = 1000;
  const pid_t child = fork_child([&] {
    const std::string variable = notes.variable();
    putenv(const_cast<char*>(variable.c_str()));  // NOLINT: putenv's signature
    for (int rank = 0; rank < RANKS; ++rank) {
      begin_failure_notes(rank);
      note_failure(ErrorCode::PEER_LOST, rank + 1);
      clear_failure();
    }
    return 0;
  });
  std::vector<FailureNote> all;
  while (!has_ended(child)) {
    for (const FailureNote& one : notes.read()) all.push_back(one);
  }
  wait_exit(child);
  for (const FailureNote& one : notes.read()) all.push_back(one);
  ASSERT_EQ(all.size(), 2U * RANKS);
  EXPECT_THAT(all.at(2U * RANKS - 2), note(RANKS - 1, ErrorCode::PEER_LOST, RANKS));
}

}  // namespace
}  // namespace lockstep

// Ranks that find each other over a TCP store, like on several machines, at the addresses of this one.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/collectives.h"
#include "lockstep/job/job.h"
#include "lockstep/os/secret.h"
#include "lockstep/os/tcp_socket.h"
#include "lockstep/store/file_store.h"
#include "testing/ranks.h"
#include "testing/sums.h"
#include "testing/temp_folder.h"

namespace lockstep {
namespace {

using harness::sum_of_ranks;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::TempFolder;
using ::testing::ThrowsMessage;

constexpr char SECRET[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
constexpr char OTHER_SECRET[] = "ffffffffffffffff0123456789abcdef0123456789abcdef0123456789abcdef";

void set_variable(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }

std::string secret_file(const TempFolder& folder, const std::string& secret) {
  const std::string path = folder.write("secret", secret);
  chmod(path.c_str(), 0600);
  return path;
}

// The environment of a rank on a machine of its own: no inherited sockets, one rank here, MASTER_ADDR and a
// secret.
class OwnMachine {
 public:
  explicit OwnMachine(const std::string& secret = SECRET) {
    unsetenv("LOCKSTEP_HUB_FDS");
    set_variable("LOCAL_WORLD_SIZE", "1");
    set_variable("LOCAL_RANK", "0");
    set_variable("LOCKSTEP_SECRET_FILE", secret_file(folder_, secret));
  }
  const TempFolder& folder() const { return folder_; }

 private:
  TempFolder folder_;
};

RANKS_TEST(Rendezvous, OverATcpStoreTheMachineIsProvedAndMemoryShared, Ranks(2, 3, 4), WithoutGroup()) {
  const OwnMachine machine;
  for (int round = 0; round < 3; ++round) {
    init_process_group();
    EXPECT_EQ(get_backend(), "shm");
    EXPECT_EQ(get_rank(), rank());
    EXPECT_EQ(sum_of_ranks(), size() * (size() - 1) / 2);
    comm::barrier(lockstep::world());
    destroy_process_group();
  }
}

RANKS_TEST(Rendezvous, WithoutACommonFolderThereIsNoProof, Ranks(2, 3), WithoutGroup()) {
  const OwnMachine machine;
  set_variable("XDG_RUNTIME_DIR", machine.folder().path());
  EXPECT_THAT([] { init_process_group("shm"); },
              ThrowsMessage<InvalidArgument>(
                  AllOf(HasSubstr("needs all ranks on one machine"), HasSubstr("use hierarchical or auto"))));
}

RANKS_TEST(Rendezvous, ATcpUrlOfThisMachineNeedsNoSecretAndOpensNoPort, Ranks(2, 4), WithoutGroup()) {
  unsetenv("LOCKSTEP_HUB_FDS");
  const std::string url = str("tcp://127.0.0.1:", *env("MASTER_PORT"), "?rank=", rank());
  init_process_group("auto", {.init_method = str(url, "&world_size=", size())});
  EXPECT_EQ(get_backend(), "shm");
  EXPECT_EQ(sum_of_ranks(), size() * (size() - 1) / 2);
  EXPECT_EQ(get_local_rank(), rank());
  if (rank() == 0)
    EXPECT_TRUE(tcp_listen("127.0.0.1", std::stoi(*env("MASTER_PORT"))).valid()) << "nobody listens there";
}

RANKS_TEST(Rendezvous, OverAGivenStore, Ranks(1, 2, 4), WithoutGroup()) {
  const std::string path =
      str(std::filesystem::temp_directory_path().string(), "/lockstep-store-", *env("LOCKSTEP_JOB_ID"));
  init_process_group("auto",
                     {.rank = rank(), .world_size = size(), .store = std::make_shared<FileStore>(path)});
  EXPECT_EQ(get_backend(), size() == 1 ? "self" : "shm");
  EXPECT_EQ(sum_of_ranks(), size() * (size() - 1) / 2);
  comm::barrier(lockstep::world());
  std::filesystem::remove(path);
}

RANKS_TEST(Rendezvous, WhereNobodySaysTheLocalRankIsCounted, Ranks(3), WithoutGroup()) {
  const OwnMachine machine;
  unsetenv("LOCAL_RANK");
  init_process_group();
  EXPECT_EQ(get_local_rank(), rank());
  EXPECT_EQ(get_local_world_size(), size());
  EXPECT_EQ(get_node_count(), 1);
}

// As of several launchers on this machine.
RANKS_TEST(Rendezvous, EachLauncherIsANode, Ranks(1, 2, 4), WithoutGroup()) {
  const OwnMachine machine;
  init_process_group();
  EXPECT_EQ(get_local_rank(), 0);
  EXPECT_EQ(get_local_world_size(), 1);
  EXPECT_EQ(get_node_rank(), rank());
  EXPECT_EQ(get_node_count(), size());
}

RANKS_TEST(Rendezvous, AnotherSecretIsRefused, Ranks(2), WithoutGroup()) {
  const OwnMachine machine(rank() == 1 ? OTHER_SECRET : SECRET);
  const InitOptions options = {.timeout = std::chrono::seconds(2)};
  if (rank() == 0) {
    EXPECT_THAT([&] { init_process_group("auto", options); },
                ThrowsMessage<Timeout>(HasSubstr("rank(s) 1 did not come before the timeout")));
  } else {
    EXPECT_THAT([&] { init_process_group("auto", options); },
                ThrowsMessage<StoreError>(AllOf(HasSubstr("secret"), Not(HasSubstr(OTHER_SECRET)))));
  }
}

RANKS_TEST(Rendezvous, WithoutASecretItSaysHowToMakeOne, Ranks(2), WithoutGroup()) {
  const OwnMachine machine;
  unsetenv("LOCKSTEP_SECRET_FILE");
  EXPECT_THAT([] { init_process_group(); },
              ThrowsMessage<InvalidArgument>(HasSubstr("head -c 32 /dev/urandom")));
}

RANKS_TEST(Rendezvous, DifferentBackendsAreNamed, Ranks(2), WithoutGroup()) {
  const OwnMachine machine;
  EXPECT_THAT([&] { init_process_group(rank() == 0 ? "auto" : "shm"); },
              ThrowsMessage<Mismatch>(HasSubstr("rank 0 asks for backend \"auto\", rank 1 for \"shm\"")));
}

std::string backend_of(int rank) { return rank == 0 ? "auto" : "tcp"; }

constexpr const char* BOTH_NAMED = "rank 0 asks for backend \"auto\", rank 1 for \"tcp\"";

RANKS_TEST(Rendezvous, DifferentBackendsAreNamedOverInheritedSockets, Ranks(2, 3), WithoutGroup()) {
  EXPECT_THAT([&] { init_process_group(backend_of(rank())); },
              ThrowsMessage<Mismatch>(HasSubstr(BOTH_NAMED)));
}

RANKS_TEST(Rendezvous, DifferentBackendsAreNamedAtAUnixSocket, Ranks(2, 3), WithoutGroup()) {
  unsetenv("LOCKSTEP_HUB_FDS");
  EXPECT_THAT([&] { init_process_group(backend_of(rank())); },
              ThrowsMessage<Mismatch>(HasSubstr(BOTH_NAMED)));
  const std::string url =
      str("tcp://127.0.0.1:", *env("MASTER_PORT"), "?rank=", rank(), "&world_size=", size());
  EXPECT_THAT([&] { init_process_group(backend_of(rank()), {.init_method = url}); },
              ThrowsMessage<Mismatch>(HasSubstr(BOTH_NAMED)));
}

RANKS_TEST(Rendezvous, DifferentBackendsAreNamedInAFile, Ranks(2), WithoutGroup()) {
  const std::string path =
      str(std::filesystem::temp_directory_path().string(), "/lockstep-meeting-", *env("LOCKSTEP_JOB_ID"));
  const InitOptions options = {.init_method = "file://" + path, .rank = rank(), .world_size = size()};
  EXPECT_THAT([&] { init_process_group(backend_of(rank()), options); },
              ThrowsMessage<Mismatch>(HasSubstr(BOTH_NAMED)));
  init_process_group("shm", options);
  comm::barrier(lockstep::world());
  std::filesystem::remove(path);
}

RANKS_TEST(Rendezvous, DifferentBackendsForOneDeviceAreNamed, Ranks(2), WithoutGroup()) {
  EXPECT_THAT([&] { init_process_group(rank() == 0 ? "shm" : "cpu:shm,cuda:nccl"); },
              ThrowsMessage<Mismatch>(
                  HasSubstr("rank 0 asks for backend \"shm\", rank 1 for \"cpu:shm,cuda:nccl\"")));
}

RANKS_TEST(Rendezvous, AMasterPortOfZeroAndANameThatIsNoneAreRefusedAtOnce, Ranks(2), WithoutGroup()) {
  const OwnMachine machine;
  set_variable("MASTER_ADDR", "no-such-host.invalid");
  EXPECT_THAT(
      [] { init_process_group(); },
      ThrowsMessage<InvalidArgument>(AllOf(HasSubstr(str("rank ", rank(), " of 2")), HasSubstr("MASTER_ADDR"),
                                           HasSubstr("no-such-host.invalid"))));
  set_variable("MASTER_PORT", "0");
  EXPECT_THAT([] { init_process_group(); },
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr(str("rank ", rank(), " of 2")),
                                                   HasSubstr("MASTER_PORT=\"0\" must be a number from 1"))));
}

RANKS_TEST(Rendezvous, AnAddressInBracketsIsTheAddress, Ranks(2), WithoutGroup()) {
  const OwnMachine machine;
  set_variable("MASTER_ADDR", "[::1]");
  init_process_group();
  EXPECT_EQ(sum_of_ranks(), 1);
  destroy_process_group();
  unsetenv("LOCKSTEP_SECRET_FILE");  // on one machine no port is opened, so no secret is needed
  unsetenv("LOCAL_WORLD_SIZE");
  unsetenv("LOCAL_RANK");
  unsetenv("LOCKSTEP_JOB_ID");
  init_process_group();
  EXPECT_EQ(sum_of_ranks(), 1);
}

RANKS_TEST(Rendezvous, ARankThatDiesBeforeAllHaveMetIsNamed, Ranks(3), Dies({2}), WithoutGroup(),
           Variable("LOCKSTEP_FAIL_POINT", "init.after_meet@2=kill")) {
  const OwnMachine machine;
  try {
    init_process_group();
    comm::barrier(lockstep::world());
    ADD_FAILURE() << "nobody noticed";
  } catch (const PeerLost& lost) {
    EXPECT_EQ(lost.peer(), 2);
  }
}

}  // namespace
}  // namespace lockstep

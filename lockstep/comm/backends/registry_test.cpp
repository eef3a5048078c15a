#include "lockstep/comm/backends/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "lockstep/base/error.h"
#include "testing/paths.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(ChooseBackends, ANameIsThatOfOne) {
  for (const char* name : {"auto", "shm", "nccl", "hierarchical+nccl"}) {
    const BackendChoice choice = choose_backends(name);
    EXPECT_EQ(choice.cpu, name);
    EXPECT_EQ(choice.cuda, "");
  }
}

TEST(ChooseBackends, OneForEachDevice) {
  const BackendChoice both = choose_backends("cpu:hierarchical,cuda:nccl");
  EXPECT_EQ(both.cpu, "hierarchical");
  EXPECT_EQ(both.cuda, "nccl");
  EXPECT_EQ(choose_backends("cpu:hierarchical,cuda:hierarchical+nccl").cuda, "hierarchical+nccl");
  EXPECT_EQ(choose_backends("cuda:nccl,cpu:tcp").cpu, "tcp");
  EXPECT_EQ(choose_backends("cpu:hierarchical+gloo,cuda:nccl").cpu, "hierarchical+gloo");
  EXPECT_EQ(choose_backends("cuda:nccl").cpu, "auto");
  EXPECT_EQ(choose_backends("cpu:shm").cuda, "");
}

TEST(ChooseBackends, NamesTheEntryThatIsNone) {
  for (const char* wrong :
       {"cpu:nccl", "cpu:hierarchical+nccl", "cuda:shm", "gpu:nccl", "cpu:", "cpu:shm,nccl", ":"}) {
    EXPECT_THAT([&] { choose_backends(wrong); },
                ThrowsMessage<InvalidArgument>(
                    AllOf(HasSubstr("init_process_group: backend"), HasSubstr("cpu:NAME, cuda:nccl or"))))
        << wrong;
  }
}

TEST(FindBackend, ListsTheNames) {
  EXPECT_EQ(find_backend("auto", 1).name, "self");
  EXPECT_EQ(find_backend("auto", 2).name, "shm");
  EXPECT_THAT([] { find_backend("nvlink", 2); },
              ThrowsMessage<InvalidArgument>(
                  AllOf(HasSubstr("nvlink"), HasSubstr("self, shm, tcp, hierarchical"), HasSubstr("nccl"))));
}

// `lockstep info --backends` prints what belongs there.
TEST(BackendTable, IsTheOneInTheDocs) {
  std::ifstream file(testing::source_folder() + "/docs/backends.md");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_THAT(text.str(), HasSubstr(backend_table()));
}

TEST(BackendTable, SaysWhatNcclLacks) {
  const std::string table = backend_table();
  EXPECT_THAT(table, HasSubstr("| `nccl` | CUDA | yes, of the hosts | yes | yes, not int16"));
  EXPECT_THAT(table, HasSubstr("| `shm` | CPU | yes | yes |"));
}

}  // namespace
}  // namespace lockstep

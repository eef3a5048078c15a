// Saves that are written while the program goes on.
#include <gmock/gmock.h>
#include <torch/types.h>

#include <fstream>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/load_checkpoint.h"
#include "lockstep/checkpoint/save_checkpoint.h"
#include "lockstep/comm/collectives/collectives.h"
#include "lockstep/formats/checkpoint_folder.h"
#include "lockstep/job/job.h"
#include "testing/ranks.h"
#include "testing/shared_folder.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::SharedFolder;
using ::testing::ThrowsMessage;

RANKS_TEST(AsyncSave, HoldsTheValuesOfItsCall, Ranks(1, 2, 3, 4), Backends("shm", "tcp", "hierarchical")) {
  const SharedFolder folder(world());
  const at::Tensor tensor = torch::zeros({300'000});
  int value = 0;
  CheckpointState state;
  state.add("t", tensor).add_value("value", value);
  for (int step = 1; step <= 4; ++step) {
    tensor.fill_(step);
    value = step;
    EXPECT_TRUE(save_checkpoint_async(folder.path(), state, {.step = step}));
    // What training does meanwhile: other values, and collectives of its own.
    tensor.fill_(-1);
    value = -1;
    std::vector<int> sum = {1};
    comm::all_reduce(world(), std::span(sum));
    EXPECT_EQ(sum[0], size());
  }
  wait_for_checkpoint();
  EXPECT_FALSE(is_saving_checkpoint());
  for (int step = 1; step <= 4; ++step) {
    EXPECT_EQ(load_checkpoint(folder.path(), state, {.step = step})->step, step);
    EXPECT_TRUE(tensor.equal(torch::full({300'000}, static_cast<float>(step))));
    EXPECT_EQ(value, step);
  }
}

RANKS_TEST(AsyncSave, ThatFailsTellsTheNextCall, Ranks(1, 2, 3)) {
  const SharedFolder folder(world());
  if (rank() == 0) std::ofstream(folder / "file") << "in the way";
  comm::barrier(world());
  CheckpointState state;
  state.add("t", torch::ones({10}));
  EXPECT_TRUE(save_checkpoint_async(folder / "file", state, {.step = 1}));
  EXPECT_THAT([&] { save_checkpoint_async(folder.path(), state, {.step = 2}); },
              ThrowsMessage<SystemError>(HasSubstr("save_checkpoint_async of step 1, rank 0")));
  EXPECT_TRUE(save_checkpoint_async(folder.path(), state, {.step = 3}));
  wait_for_checkpoint();
  EXPECT_EQ(latest_checkpoint(folder.path())->step, 3);
}

RANKS_TEST(AsyncSave, IsCompleteOnceTheJobIsLeft, Ranks(1, 2, 3)) {
  const SharedFolder folder(world());
  CheckpointState state;
  state.add("t", torch::ones({1'000'000}));
  save_checkpoint_async(folder.path(), state, {.step = 1});
  rejoin();
  EXPECT_EQ(latest_checkpoint(folder.path())->step, 1);
}

RANKS_TEST(AsyncSave, IsRefusedWhileAnotherIsWritten, Ranks(1, 2)) {
  const SharedFolder folder(world());
  CheckpointState state;
  state.add("t", torch::ones({4'000'000}));
  int done = 0;
  for (int step = 1; step <= 20; ++step)
    done += save_checkpoint_async(folder.path(), state, {.step = step, .durable = false}, WhenBusy::REFUSE)
                ? 1
                : 0;
  wait_for_checkpoint();
  EXPECT_EQ(list_checkpoints(folder.path()).size(), static_cast<std::size_t>(done));
  EXPECT_GE(done, 1);
}

}  // namespace
}  // namespace lockstep

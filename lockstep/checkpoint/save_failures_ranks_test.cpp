// What goes wrong is the same error on all ranks, leaves nothing behind, and training can go on.
#include <gmock/gmock.h>
#include <torch/nn.h>
#include <torch/types.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/load_checkpoint.h"
#include "lockstep/checkpoint/save_checkpoint.h"
#include "lockstep/data/distributed_sampler.h"
#include "lockstep/formats/checkpoint_folder.h"
#include "lockstep/os/folder.h"
#include "testing/ranks.h"
#include "testing/shared_folder.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::SharedFolder;
using ::testing::ThrowsMessage;

RANKS_TEST(CheckpointFailure, OfOneRanksDiskIsThrownByAll, Ranks(1, 2, 3, 4)) {
  const SharedFolder folder(world());
  if (rank() == 0) std::ofstream(folder / "file") << "in the way";
  comm::barrier(world());
  const at::Tensor tensor = torch::ones({64});
  CheckpointState state;
  state.add("t", tensor);
  try {
    save_checkpoint(folder / "file/deeper", state, {.step = 7});
    FAIL();
  } catch (const SystemError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("save_checkpoint of step 7, rank 0 of"),
                                    HasSubstr("file/deeper"), HasSubstr("Not a directory")));
    EXPECT_EQ(error.error_number(), ENOTDIR);
  }
  EXPECT_EQ(save_checkpoint(folder.path(), state, {.step = 8}), folder / "step-000000000008");
}

RANKS_TEST(CheckpointFailure, WhereRanksDisagreeNamesWhat, Ranks(2, 3, 4)) {
  const SharedFolder folder(world());
  const bool is_last = rank() == size() - 1;
  const auto expect_mismatch = [&](CheckpointState& state, const std::string& words) {
    EXPECT_THAT([&] { save_checkpoint(folder.path(), state, {.step = 1}); },
                ThrowsMessage<Mismatch>(AllOf(HasSubstr("rank 0 and rank"), HasSubstr(words))));
  };
  int value = is_last ? 1 : 0;
  CheckpointState values;
  values.add_value("epoch", value);
  expect_mismatch(values, "hold different values of \"epoch\"");

  const at::Tensor tensor = torch::ones({100'000});
  if (is_last) tensor[99'999] = 2;
  CheckpointState tensors;
  tensors.add("weights", tensor);
  expect_mismatch(tensors, "values of \"weights\"");

  CheckpointState items;
  items.add(is_last ? "this" : "that", tensor);
  expect_mismatch(items, "add different items");

  CheckpointState same;
  same.add("t", torch::ones({3}));
  EXPECT_THAT([&] { save_checkpoint(folder.path(), same, {.step = rank()}); },
              ThrowsMessage<Mismatch>(HasSubstr("options")));
  EXPECT_FALSE(latest_checkpoint(folder.path()));
  save_checkpoint(folder.path(), same, {.step = 1});
}

RANKS_TEST(CheckpointFailure, OfWhatCannotBeSavedIsFoundBeforeAnythingIsWritten, Ranks(1, 2)) {
  const SharedFolder folder(world());
  const auto expect_refusal = [&](const at::Tensor& tensor, const std::string& words) {
    CheckpointState state;
    state.add("odd", tensor);
    EXPECT_THAT([&] { save_checkpoint(folder.path(), state); },
                ThrowsMessage<InvalidArgument>(HasSubstr(words)));
  };
  expect_refusal(at::Tensor(), "\"odd\" cannot be saved: it is undefined");
  expect_refusal(torch::eye(3).to_sparse(), "sparse");
  expect_refusal(torch::quantize_per_tensor(torch::ones({2}), 1, 0, at::kQInt8), "QInt8");
  DistributedSampler exact(4, {.pad = false});
  CheckpointState with_sampler;
  EXPECT_THAT([&] { with_sampler.add("test", exact); },
              ThrowsMessage<InvalidArgument>(HasSubstr("the sampler \"test\" has pad = false")));
  CheckpointState state;
  state.add("t", torch::ones({1}));
  EXPECT_THAT([&] { save_checkpoint(folder.path(), state, {.step = -1}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("-1")));
  EXPECT_THAT([&] { state.add("t", torch::ones({1})); }, ThrowsMessage<InvalidArgument>(HasSubstr("taken")));
  EXPECT_THAT([&] { state.add("a.b", torch::ones({1})); },
              ThrowsMessage<InvalidArgument>(HasSubstr("divide")));
  EXPECT_THAT(names_in(folder.path()), ElementsAre());
}

RANKS_TEST(CheckpointFailure, NamesEverythingThatDoesNotFit, Ranks(1, 2, 3)) {
  const SharedFolder folder(world());
  CheckpointState saved;
  int epoch = 1;
  saved.add("weight", torch::ones({2, 3})).add("bias", torch::ones({3})).add_value("epoch", epoch);
  save_checkpoint(folder.path(), saved, {.step = 1});
  const at::Tensor weight = torch::zeros({3, 2});
  CheckpointState other;
  other.add("weight", weight).add("baas", torch::zeros({3})).add("epoch", torch::zeros({1}));
  EXPECT_THAT([&] { load_checkpoint(folder.path(), other); },
              ThrowsMessage<InvalidArgument>(
                  AllOf(HasSubstr("\"weight\" has shape [2, 3] in the checkpoint and [3, 2] in the state"),
                        HasSubstr("\"baas\" is not in the checkpoint (did you mean \"bias\"?)"),
                        HasSubstr("\"bias\" of the checkpoint is not in the state"),
                        HasSubstr("\"epoch\" is value in the checkpoint"))));
  EXPECT_TRUE(weight.equal(torch::zeros({3, 2})));
  EXPECT_THAT([&] { load_checkpoint(folder / "gone", other); },
              ThrowsMessage<InvalidArgument>(HasSubstr("gone")));
  EXPECT_FALSE(load_checkpoint(folder / "gone", other, {.missing_ok = true}));
}

RANKS_TEST(DamagedCheckpoint, IsPassedOverForThePreviousOne, Ranks(1, 2, 3, 4), Backends("shm", "tcp")) {
  const SharedFolder folder(world());
  const at::Tensor tensor = torch::zeros({1000});
  CheckpointState state;
  state.add("t", tensor);
  for (const int step : {1, 2}) {
    tensor.fill_(step);
    save_checkpoint(folder.path(), state, {.step = step});
  }
  const std::string shard =
      folder / "step-000000000002/shard-00000-of-0000" + std::to_string(size()) + ".safetensors";
  if (rank() == 0) {
    std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-5, std::ios::end);
    file.put('\x55');
  }
  comm::barrier(world());
  EXPECT_THAT([&] { load_checkpoint(folder.path(), state, {.when_damaged = WhenDamaged::FAIL}); },
              ThrowsMessage<FormatError>(AllOf(HasSubstr("step-000000000002"), HasSubstr("tensor \"t\""))));
  EXPECT_TRUE(tensor.equal(torch::full({1000}, 2.0F)));
  const auto loaded = load_checkpoint(folder.path(), state);
  EXPECT_EQ(loaded->step, 1);
  EXPECT_THAT(loaded->damaged, ElementsAre(HasSubstr("its bytes are not those that were written")));
  EXPECT_TRUE(tensor.equal(torch::ones({1000})));

  if (rank() == 0) std::ofstream(folder / "step-000000000001/checkpoint.json") << "{";
  comm::barrier(world());
  EXPECT_THAT([&] { load_checkpoint(folder.path(), state); },
              ThrowsMessage<FormatError>(AllOf(HasSubstr("no whole checkpoint"), HasSubstr("not JSON"))));
}

}  // namespace
}  // namespace lockstep

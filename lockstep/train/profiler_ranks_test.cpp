// Our collectives in a rank's trace.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "lockstep/comm/collectives/collectives.h"
#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "lockstep/train/profiler.h"
#include "testing/ranks.h"
#include "testing/temp_folder.h"

namespace lockstep {
namespace {

using nlohmann::json;
using testing::TempFolder;

std::vector<json> calls_in(const Profile& prof, int rank, int size) {
  const TempFolder folder;
  const std::string path = prof.export_chrome_trace(folder / "trace.json");
  const std::string name = size == 1 ? "trace.json" : "trace_rank_" + std::to_string(rank) + ".json";
  EXPECT_EQ(path, folder / name);
  const json trace = json::parse(folder.read(name));
  EXPECT_EQ(trace["distributedInfo"]["rank"], rank);
  EXPECT_EQ(trace["distributedInfo"]["world_size"], size);
  std::vector<json> calls;
  for (const json& event : trace["traceEvents"]) {
    if (event.value("cat", "") == "lockstep") calls.push_back(event);
  }
  return calls;
}

RANKS_TEST(Profiler, HasEachCollectiveOnceWithItsBytes, Ranks(1, 2, 3, 4), Backends("shm", "tcp")) {
  constexpr std::size_t CALLS = 300;  // more than the flight recorder keeps
  std::vector<float> data(CALLS, 1);
  comm::barrier(world());
  auto prof = profile();
  for (std::size_t n = 1; n <= CALLS; ++n) comm::all_reduce(world(), std::span(data).first(n), ReduceOp::MAX);
  comm::broadcast(world(), std::span(data), size() - 1);
  comm::barrier(world());
  prof.stop();
  comm::barrier(world());
  const std::vector<json> calls = calls_in(prof, rank(), size());
  ASSERT_EQ(calls.size(), CALLS + 2);
  const auto first = calls[0]["args"]["sequence"].get<std::size_t>();
  for (std::size_t n = 1; n <= CALLS + 2; ++n) {
    const json& call = calls[n - 1];
    EXPECT_EQ(call["name"], n <= CALLS       ? "lockstep:all_reduce"
                            : n == CALLS + 1 ? "lockstep:broadcast"
                                             : "lockstep:barrier");
    EXPECT_EQ(call["args"]["bytes"], n <= CALLS ? 4 * n : n == CALLS + 1 ? 4 * CALLS : 0);
    EXPECT_EQ(call["args"]["sequence"], first + n - 1);
    EXPECT_EQ(call["args"]["state"], "done");
    EXPECT_EQ(call["args"]["group"], world().name());
    EXPECT_EQ(call["args"]["rank"], rank());
    EXPECT_GE(call["dur"].get<double>(), 0);
  }
  std::map<std::string, std::int64_t> counts;
  for (const FunctionEventAvg& row : prof.key_averages()) counts[row.key] = row.count;
  EXPECT_EQ(counts["lockstep:all_reduce"], CALLS);
  EXPECT_EQ(counts["lockstep:broadcast"], 1);
}

RANKS_TEST(Profiler, SeesAStepOfDDP, Ranks(1, 2, 3, 4)) {
  constexpr int STEPS = 3;
  torch::set_num_threads(1);
  torch::nn::Sequential net(torch::nn::Linear(8, 64), torch::nn::Tanh(), torch::nn::Linear(64, 4));
  DistributedDataParallel ddp(net, {.process_group = world(), .bucket_cap_mb = 0.001});
  const auto step = [&] {
    const auto range = record_function("step");
    net->zero_grad();
    ddp->forward(torch::ones({2, 8})).sum().backward();
  };
  for (int i = 0; i < STEPS; ++i) step();  // buckets are rebuilt in the first
  comm::barrier(world());
  auto prof = profile();
  for (int i = 0; i < STEPS; ++i) step();
  prof.stop();
  comm::barrier(world());
  std::int64_t bytes = 0, expected = 0;
  std::map<std::string, std::int64_t> counts;
  for (const json& call : calls_in(prof, rank(), size())) {
    EXPECT_EQ(call["args"]["state"], "done");
    if (call["name"] != "lockstep:all_reduce") continue;
    bytes += call["args"]["bytes"].get<std::int64_t>();
    ++counts["lockstep:all_reduce"];
  }
  for (const at::Tensor& p : net->parameters())
    expected += STEPS * ((p.numel() * 4 + 63) / 64 * 64);  // a bucket's places are cache lines
  EXPECT_EQ(bytes, expected) << "every gradient once per step";
  EXPECT_GT(counts["lockstep:all_reduce"], STEPS) << "more than one bucket";
  for (const FunctionEventAvg& row : prof.key_averages()) counts[row.key] = row.count;
  EXPECT_EQ(counts["step"], STEPS);
  EXPECT_EQ(counts["AddmmBackward0"], 2 * STEPS);
}

}  // namespace
}  // namespace lockstep

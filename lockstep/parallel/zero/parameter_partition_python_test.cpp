// Beside torch.distributed.optim.ZeroRedundancyOptimizer: the same owners of the same parameters.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "lockstep/parallel/zero/parameter_partition.h"
#include "testing/python.h"

namespace lockstep {
namespace {

const char* const PARTITION = R"(
import json, sys, torch, torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.testing._internal.distributed.fake_pg import FakeStore

for ranks, groups in json.loads(sys.argv[1]):
    dist.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())
    params = [[torch.nn.Parameter(torch.empty(n)) for n in sizes] for sizes in groups]
    numbers = {p: i for i, p in enumerate(p for ps in params for p in ps)}
    optimizer = ZeroRedundancyOptimizer([{"params": ps} for ps in params], torch.optim.SGD, lr=0.1)
    for rank, own in enumerate(optimizer._partition_parameters()):
        total = sum(p.numel() for g in own for p in g["params"])
        texts = [f"group {g}: " + (" ".join(str(numbers[p]) for p in group["params"]) or "none")
                 for g, group in enumerate(own)]
        print(f"rank {rank}, {total} elements: " + "; ".join(texts))
    dist.destroy_process_group()
)";

TEST(ParameterPartitionPython, GivesEachRankTheSameParameters) {
  std::vector<std::vector<std::vector<std::int64_t>>> lists = {
      {{1}},
      {{5, 5, 5, 5, 5}},
      {{3, 9, 1, 9, 2, 7, 0, 4}},
      {{1000, 1, 1, 1, 1, 1}, {12, 12, 500}},
      {{64, 4096, 64, 4096, 10, 640}, {7}, {640, 10, 1}},
  };
  std::mt19937 random(7);
  for (int i = 0; i < 4; ++i) {
    lists.emplace_back(3);
    for (auto& group : lists.back())
      for (int n = 0; n < 25; ++n) group.push_back(static_cast<std::int64_t>(random() % 30));
  }
  nlohmann::json cases = nlohmann::json::array();
  std::string expected;
  for (const auto& groups : lists)
    for (const int ranks : {1, 2, 3, 4, 8}) {
      cases.push_back({ranks, groups});
      expected += to_text(partition_parameters(groups, ranks));
    }
  EXPECT_EQ(testing::run_python(PARTITION, {cases.dump()}), expected);
}

}  // namespace
}  // namespace lockstep

#include "lockstep/train/reproducible.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <set>
#include <sstream>

#include "lockstep/base/error.h"
#include "testing/python.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::string numbers() {
  const double uniform = torch::rand({}).item<double>();  // in this order
  const double normal = torch::randn({}).item<double>();
  char text[64];
  std::snprintf(text, sizeof text, "%.9g %.9g\n", uniform, normal);
  return text;
}

TEST(SetSeed, GivesPythonsNumbers) {
  std::string ours, script = "import torch\n";
  for (const auto& [seed, rank] : {std::pair(42, 0), {42, 1}, {0, 3}}) {
    const std::uint64_t used = set_seed(static_cast<std::uint64_t>(seed), rank);
    ours += numbers();
    script += "torch.manual_seed(" + std::to_string(used) +
              ")\nprint('%.9g %.9g' % (torch.rand(()).item(), torch.randn(()).item()))\n";
  }
  EXPECT_EQ(ours, testing::run_python(script));
}

TEST(SetSeed, KeepsRanksAndSeedsApart) {
  EXPECT_EQ(set_seed(42), 42U);
  EXPECT_EQ(set_seed(42, 7), set_seed(42, 7));
  std::set<std::uint64_t> used;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    for (int rank = 0; rank < 100; ++rank) used.insert(set_seed(seed, rank));
  }
  EXPECT_EQ(used.size(), 10000U);
  EXPECT_THAT([] { set_seed(1, -1); }, ThrowsMessage<InvalidArgument>(HasSubstr("rank -1")));
}

TEST(DeterministicAlgorithms, FillNewMemoryAndRefuseWhatIsNot) {
  EXPECT_FALSE(are_deterministic_algorithms_enabled());
  use_deterministic_algorithms(true);
  EXPECT_TRUE(are_deterministic_algorithms_enabled());
  EXPECT_TRUE(
      torch::empty({100}).isnan().all().item<bool>());  // torch.utils.deterministic.fill_uninitialized_memory
  use_deterministic_algorithms(true, /*warn_only=*/true);
  EXPECT_TRUE(at::globalContext().deterministicAlgorithmsWarnOnly());
  use_deterministic_algorithms(false);
  EXPECT_FALSE(are_deterministic_algorithms_enabled());
}

TEST(MatmulPrecision, TakesTheWordsOfTorch) {
  EXPECT_EQ(get_float32_matmul_precision(), "highest");
  for (const char* const word : {"high", "medium", "highest"}) {
    set_float32_matmul_precision(word);
    EXPECT_EQ(get_float32_matmul_precision(), word);
  }
  EXPECT_THAT([] { set_float32_matmul_precision("tf32"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("\"tf32\"")));
}

}  // namespace
}  // namespace lockstep

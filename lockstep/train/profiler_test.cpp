#include "lockstep/train/profiler.h"

#include <gmock/gmock.h>
#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/cuda.h>
#include <torch/torch.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "lockstep/base/error.h"
#include "testing/python.h"

namespace lockstep {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::run_python;
using testing::TempFolder;
using ::testing::ThrowsMessage;

// The same program in both languages, whose operations are then compared.
struct Weights {
  at::Tensor w1 = torch::ones({16, 8}).requires_grad_(), b1 = torch::ones({16}).requires_grad_();
  at::Tensor w2 = torch::ones({4, 16}).requires_grad_(), b2 = torch::ones({4}).requires_grad_();
  at::Tensor x = torch::ones({3, 8}), y = torch::ones({3, 4}), seed = torch::ones({});

  void step() const {
    at::Tensor loss;
    {
      const auto range = record_function("forward");
      const at::Tensor hidden = at::relu(at::linear(x, w1, b1));
      loss = at::mse_loss(at::linear(hidden, w2, b2), y);
    }
    loss.backward(seed);  // without it Python and C++ make their ones in different ways
  }
};

const char* const STEP = R"(
import json, torch
from torch._C._nn import linear, mse_loss  # torch.nn.functional has Python around them
from torch.profiler import ProfilerActivity, profile, record_function

w1, b1 = torch.ones(16, 8, requires_grad=True), torch.ones(16, requires_grad=True)
w2, b2 = torch.ones(4, 16, requires_grad=True), torch.ones(4, requires_grad=True)
x, y, seed = torch.ones(3, 8), torch.ones(3, 4), torch.ones(())
def step():
    with record_function("forward"):
        loss = mse_loss(linear(torch.relu(linear(x, w1, b1)), w2, b2), y, 1)  # 1: the mean
    loss.backward(seed)
step()
with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as p:
    step()
    step()
print(json.dumps([{row.key + (str(row.input_shapes) if shapes else ""): row.count
                   for row in p.key_averages(group_by_input_shape=shapes)} for shapes in (False, True)]))
)";

TEST(Profiler, CountsTheOperationsThatPythonCounts) {
  const Weights weights;
  weights.step();
  auto prof = profile({.record_shapes = true});
  weights.step();
  weights.step();
  prof.stop();
  json counts = json::array();
  for (const bool shapes : {false, true}) {
    json& of = counts.emplace_back(json::object());
    for (const FunctionEventAvg& row : prof.key_averages(shapes)) of[row.key + row.input_shapes] = row.count;
  }
  EXPECT_EQ(counts, json::parse(run_python(STEP)));
  EXPECT_EQ(counts[0]["aten::addmm"], 4);
  EXPECT_EQ(counts[0]["forward"], 2);
}

TEST(Profiler, SelfTimesAddUp) {
  const Weights weights;
  auto prof = profile();
  weights.step();
  prof.stop();
  double sum = 0, outermost = 0;
  for (const FunctionEventAvg& row : prof.key_averages()) sum += row.self_cpu_time_total;
  // One thread: the union of the events' intervals.
  auto events = prof.trace().events;
  std::stable_sort(events.begin(), events.end(),
                   [](const auto& a, const auto& b) { return a.start_ns < b.start_ns; });
  std::int64_t until = 0;
  for (const ProfilerEvent& event : events) {
    outermost +=
        static_cast<double>(std::max<std::int64_t>(event.end_ns - std::max(until, event.start_ns), 0)) / 1e3;
    until = std::max(until, event.end_ns);
  }
  EXPECT_GT(sum, 0);
  EXPECT_NEAR(sum, outermost, 1e-6 * outermost);
  EXPECT_THAT(prof.key_averages().table("self_cpu_time_total", 3), HasSubstr("Self CPU time total: "));
}

TEST(Profiler, KnowsMemory) {
  auto prof = profile({.profile_memory = true});
  const at::Tensor kept = torch::empty({1000});
  { const at::Tensor dropped = torch::empty({500}); }
  prof.stop();
  std::map<std::string, std::int64_t> self;
  for (const FunctionEventAvg& row : prof.key_averages()) self[row.key] = row.self_cpu_memory_usage;
  EXPECT_EQ(self["aten::empty"], 4000 + 2000);
  EXPECT_EQ(self["[memory]"], -2000) << "given back between operations";
  EXPECT_THAT(prof.key_averages().table(), HasSubstr("Self CPU Mem"));
}

TEST(Profiler, WritesATrace) {
  const TempFolder folder;
  auto prof = profile({.record_shapes = true});
  Weights().step();
  prof.stop();
  const std::string path = prof.export_chrome_trace(folder / "trace_{rank}.json");
  EXPECT_EQ(path, folder / "trace_0.json");
  EXPECT_EQ(std::filesystem::status(path).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  const json trace = json::parse(folder.read("trace_0.json"));
  std::map<std::string, int> counts, expected;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == "X") ++counts[event["name"]];
  }
  for (const ProfilerEvent& event : prof.trace().events) ++expected[event.name];
  EXPECT_EQ(counts, expected);
  EXPECT_THAT([&] { prof.export_chrome_trace("/nonexistent/trace.json"); },
              ThrowsMessage<SystemError>(HasSubstr("/nonexistent/")));
}

TEST(Profiler, IsOneAtATime) {
  auto prof = profile();
  EXPECT_THAT([] { const auto nested = profile(); },
              ThrowsMessage<InvalidArgument>(HasSubstr("one at a time")));
  std::thread([] {
    EXPECT_THAT([] { const auto other = profile(); },
                ThrowsMessage<InvalidArgument>(HasSubstr("one at a time")));
  }).join();
  at::ones({3});
  prof.stop();
  prof.stop();
  EXPECT_EQ(prof.key_averages().at(0).key, "aten::ones") << "the first goes on";
  auto next = profile();
  next.stop();
  EXPECT_TRUE(next.key_averages().empty());
}

TEST(Profiler, LeavesLibtorchsOwnAlone) {
  using namespace torch::profiler::impl;
  const ProfilerConfig config(ProfilerState::KINETO);
  torch::autograd::profiler::prepareProfiler(config, {ActivityType::CPU});
  torch::autograd::profiler::enableProfiler(config, {ActivityType::CPU});
  EXPECT_THAT([] { const auto prof = profile(); },
              ThrowsMessage<InvalidArgument>(HasSubstr("enableProfiler")));
  at::ones({3});
  EXPECT_FALSE(torch::autograd::profiler::disableProfiler()->events().empty());
  profile().stop();
}

TEST(Profiler, OutlivesExceptions) {
  auto prof = profile();
  EXPECT_THROW(
      {
        const auto range = record_function("failing");
        at::mm(torch::ones({2, 3}), torch::ones({2, 3}));
      },
      c10::Error);
  prof.stop();
  std::map<std::string, std::int64_t> counts;
  for (const FunctionEventAvg& row : prof.key_averages()) counts[row.key] = row.count;
  EXPECT_EQ(counts["failing"], 1);
  EXPECT_EQ(counts["aten::mm"], 1);

  EXPECT_THROW(
      {
        const auto inner = profile();
        throw std::runtime_error("thrown in the profiled part");
      },
      std::runtime_error);
  auto next = profile();
  at::ones({3});
  next.stop();
  EXPECT_EQ(next.key_averages().at(0).count, 1);
}

std::int64_t count_of(const Profile& prof, const std::string& key) {
  for (const FunctionEventAvg& row : prof.key_averages()) {
    if (row.key == key) return row.count;
  }
  return 0;
}

TEST(Profiler, SeesItsThreadOrAll) {
  for (const bool all : {false, true}) {
    auto prof = profile({.profile_all_threads = all});
    { const auto range = record_function("here"); }
    std::thread([] { const auto range = record_function("there"); }).join();
    prof.stop();
    EXPECT_EQ(count_of(prof, "here"), 1);
    EXPECT_EQ(count_of(prof, "there"), all ? 1 : 0);
  }
}

// A backward pass inside a backward pass has a thread of autograd's own when they are nested deep enough.
struct Inner : torch::autograd::Function<Inner> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            std::int64_t depth) {
    context->saved_data["depth"] = depth;
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const std::int64_t depth = context->saved_data["depth"].toInt();
    const at::AutoGradMode with_gradients(true);
    const at::Tensor leaf = torch::ones({2}).requires_grad_();
    if (depth > 0) Inner::apply(leaf, depth - 1).sum().backward();
    return {gradients[0], {}};
  }
};

TEST(Profiler, SeesAutogradsThreads) {
  constexpr int DEPTH = 130;
  auto prof = profile();
  Inner::apply(torch::ones({2}).requires_grad_(), DEPTH).sum().backward();
  prof.stop();
  EXPECT_EQ(count_of(prof, "SumBackward0"), DEPTH + 1);
  std::map<std::uint64_t, int> threads;
  for (const ProfilerEvent& event : prof.trace().events) ++threads[event.thread];
  EXPECT_GT(threads.size(), 1U);
}

TEST(Profiler, IsAskedOnItsThreadAndAfterItsEnd) {
  auto prof = profile();
  EXPECT_THAT([&] { prof.key_averages(); }, ThrowsMessage<InvalidArgument>(HasSubstr("stop()")));
  EXPECT_THAT([&] { prof.export_chrome_trace("t"); }, ThrowsMessage<InvalidArgument>(HasSubstr("stop()")));
  std::thread([&] {
    EXPECT_THAT([&] { prof.stop(); }, ThrowsMessage<InvalidArgument>(HasSubstr("another thread")));
  }).join();
  prof.stop();
}

TEST(Profiler, RefusesWhatItCannot) {
  EXPECT_THAT([] { const auto prof = profile({.with_stack = true}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("with_stack")));
  if (!torch::cuda::is_available()) {
    EXPECT_THAT([] { const auto prof = profile({.activities = {ProfilerActivity::CUDA}}); },
                ThrowsMessage<InvalidArgument>(HasSubstr("ProfilerActivity::CUDA")));
  }
  profile({.activities = {ProfilerActivity::CPU}}).stop();
}

}  // namespace
}  // namespace lockstep

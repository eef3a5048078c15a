// A call that blocks tells the backend that its caller waits: private memory then takes the ways of
// docs/performance.md that copy less. What these ways are worth is measured by bench/tensor_collectives.cpp.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/collectives/coalesced.h"
#include "lockstep/tensor/collectives.h"
#include "lockstep/tensor/functional.h"
#include "testing/fake_backend.h"

namespace lockstep {
namespace {

using ::testing::Each;
using testing::FakeBackend;
using ::testing::IsEmpty;
using ::testing::Not;

struct NamedCall {
  std::string name;
  std::function<Work(const ProcessGroup& group, bool async_op)> call;
};

std::vector<at::Tensor> zeros(int count) {
  std::vector<at::Tensor> list;
  for (int i = 0; i < count; ++i) list.push_back(at::zeros({100}));
  return list;
}
// Given on rank 0 only.
std::vector<at::Tensor> zeros_of_root(const ProcessGroup& group) {
  return zeros(group.rank() == 0 ? group.size() : 0);
}

std::vector<NamedCall> reductions() {
  const at::Tensor x = at::zeros({100});
  const auto all = [](const ProcessGroup& group) { return at::zeros({100 * group.size()}); };
  return {
      {"all_reduce", [=](auto& group, bool async) { return all_reduce(x, ReduceOp::SUM, group, async); }},
      {"all_reduce, not contiguous",
       [](auto& group, bool async) {
         return all_reduce(at::zeros({5, 4}).t(), ReduceOp::SUM, group, async);
       }},
      {"all_reduce_coalesced",
       [=](auto& group, bool async) {
         return all_reduce_coalesced({x, x}, ReduceOp::SUM, group, async);
       }},
      {"reduce", [=](auto& group, bool async) { return reduce(x, 0, ReduceOp::SUM, group, async); }},
      {"reduce_scatter",
       [=](auto& group, bool async) {
         return reduce_scatter(at::zeros({100}), zeros(group.size()), ReduceOp::SUM, group, async);
       }},
      {"reduce_scatter_tensor",
       [=](auto& group, bool async) {
         return reduce_scatter_tensor(at::zeros({100}), all(group), ReduceOp::SUM, group, async);
       }},
  };
}

std::vector<NamedCall> copies() {
  const at::Tensor x = at::zeros({100});
  const auto all = [](const ProcessGroup& group) { return at::zeros({100 * group.size()}); };
  return {
      {"broadcast", [=](auto& group, bool async) { return broadcast(x, 0, group, async); }},
      {"all_gather",
       [=](auto& group, bool async) { return all_gather(zeros(group.size()), x, group, async); }},
      {"all_gather_into_tensor",
       [=](auto& group, bool async) { return all_gather_into_tensor(all(group), x, group, async); }},
      {"gather", [=](auto& group, bool async) { return gather(x, zeros_of_root(group), 0, group, async); }},
      {"scatter",
       [=](auto& group, bool async) {
         return scatter(at::zeros({100}), zeros_of_root(group), 0, group, async);
       }},
      {"all_to_all",
       [=](auto& group, bool async) {
         return all_to_all(zeros(group.size()), zeros(group.size()), group, async);
       }},
      {"all_to_all_single",
       [=](auto& group, bool async) {
         return all_to_all_single(all(group), all(group), {}, {}, group, async);
       }},
      {"barrier", [](auto& group, bool async) { return barrier(group, async); }},
  };
}

// What was asked of the backend since the last question: async_op of each operation.
std::vector<bool> heard(FakeBackend& backend) {
  std::vector<bool> answers;
  for (const Request& request : std::exchange(backend.started, {})) answers.push_back(request.async_op);
  return answers;
}

TEST(BlockingCalls, TellTheBackendThatTheCallerWaits) {
  const auto backend = std::make_shared<FakeBackend>(2);
  const ProcessGroup group(backend);
  for (const auto& calls : {reductions(), copies()}) {
    for (const NamedCall& one : calls) {
      one.call(group, /*async_op=*/false);
      EXPECT_EQ(heard(*backend), std::vector<bool>{false}) << one.name;
      one.call(group, /*async_op=*/true).wait();
      EXPECT_EQ(heard(*backend), std::vector<bool>{true}) << one.name << " with async_op";
    }
  }
}

TEST(BlockingCalls, SoDoTheFormsWithoutAWork) {
  const auto backend = std::make_shared<FakeBackend>(2);
  const ProcessGroup group(backend);
  const at::Tensor message = at::ones({100});
  const at::Tensor x = at::ones({100}).set_requires_grad(true);
  const std::vector<std::pair<std::string, std::function<void()>>> calls = {
      {"send", [&] { send(message, 1, group); }},
      {"recv", [&] { EXPECT_EQ(recv(message, 1, group), 1); }},
      {"all_reduce of a sparse tensor",
       [&] {
         all_reduce(at::ones({3, 2}).to_sparse(), ReduceOp::SUM, group);
       }},
      {"functional::all_reduce", [&] { functional::all_reduce(x, ReduceOp::SUM, group).sum().backward(); }},
      {"functional::broadcast", [&] { functional::broadcast(x, 0, group).sum().backward(); }},
      {"functional::all_gather", [&] { at::stack(functional::all_gather(x, group)).sum().backward(); }},
      {"comm::all_reduce_coalesced",
       [&] {
         std::vector<float> values(10);
         comm::all_reduce_coalesced(group, std::vector<std::span<float>>{values});
       }},
  };
  for (const auto& [name, call] : calls) {
    call();
    const std::vector<bool> answers = heard(*backend);
    EXPECT_THAT(answers, Not(IsEmpty())) << name;
    EXPECT_THAT(answers, Each(false)) << name;
  }
}

}  // namespace
}  // namespace lockstep

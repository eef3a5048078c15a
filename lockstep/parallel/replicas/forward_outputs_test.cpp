#include "lockstep/parallel/replicas/forward_outputs.h"

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <torch/ordered_dict.h>

#include <functional>
#include <map>

namespace user {

struct Detections {
  at::Tensor boxes;
  std::vector<at::Tensor> scores;
};
void visit_tensors(const Detections& detections, lockstep::OutputTensors& outputs) {
  outputs.visit(detections.boxes);
  outputs.visit(detections.scores);
}

}  // namespace user

namespace lockstep {
namespace {

using ::testing::ElementsAre;

at::Tensor number(double value) { return at::full({}, value); }

std::vector<double> numbers_in(const auto& output, bool complete = true) {
  OutputTensors found;
  found.visit(output);
  EXPECT_EQ(found.complete, complete);
  std::vector<double> numbers;
  for (const at::Tensor& tensor : found.tensors) numbers.push_back(tensor.item<double>());
  return numbers;
}

TEST(ForwardOutputs, FindsTensorsInAnythingAForwardReturns) {
  EXPECT_THAT(numbers_in(number(1)), ElementsAre(1));
  EXPECT_THAT(numbers_in(at::Tensor()), ElementsAre());
  EXPECT_THAT(numbers_in(std::tuple(number(1), 5, number(2), std::string("name"))), ElementsAre(1, 2));
  EXPECT_THAT(numbers_in(std::pair(number(1), true)), ElementsAre(1));
  EXPECT_THAT(numbers_in(std::vector{number(1), number(2)}), ElementsAre(1, 2));
  EXPECT_THAT(numbers_in(std::array{number(1), number(2)}), ElementsAre(1, 2));
  EXPECT_THAT(numbers_in(std::map<std::string, at::Tensor>{{"a", number(1)}, {"b", number(2)}}),
              ElementsAre(1, 2));
  EXPECT_THAT(numbers_in(std::optional(number(1))), ElementsAre(1));
  EXPECT_THAT(numbers_in(std::optional<at::Tensor>()), ElementsAre());
  EXPECT_THAT(numbers_in(std::make_shared<std::vector<at::Tensor>>(1, number(1))), ElementsAre(1));
  EXPECT_THAT(numbers_in(std::tuple(std::vector{std::pair(number(1), std::optional(number(2)))})),
              ElementsAre(1, 2));
  torch::OrderedDict<std::string, at::Tensor> dict;
  dict.insert("a", number(1));
  EXPECT_THAT(numbers_in(dict), ElementsAre(1));
}

TEST(ForwardOutputs, FindsTensorsInAUsersStruct) {
  const user::Detections detections{number(1), {number(2), number(3)}};
  EXPECT_THAT(numbers_in(detections), ElementsAre(1, 2, 3));
  EXPECT_THAT(numbers_in(std::vector{detections}), ElementsAre(1, 2, 3));
}

TEST(ForwardOutputs, SaysWhenItCouldNotLookInside) {
  struct Opaque {
    at::Tensor hidden;
  };
  EXPECT_THAT(numbers_in(std::pair(number(1), Opaque{number(2)}), /*complete=*/false), ElementsAre(1));
  EXPECT_THAT(numbers_in(std::function<void()>(), /*complete=*/false), ElementsAre());
}

}  // namespace
}  // namespace lockstep

// The model that the tests of pipelines run: parts of float64 that one process can run, too. Part k has the
// same initial values on any rank.
//
//   PartNets nets(shape, rank());                             // this rank's parts
//   Pipeline pipeline(nets.stages(), squared_error, {...}, world());
//   Whole whole(shape.parts());                               // all parts in one process: the answer
//   double loss = whole.step(x, y);
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <vector>

#include "lockstep/parallel/pipeline/pipeline.h"
#include "testing/tensors.h"

namespace lockstep::testing {

inline constexpr std::int64_t PIPELINE_WIDTH = 6;

// Two layers, so that a part has gradients inside and at its ends.
inline torch::nn::Sequential pipeline_part(int part, double dropout = 0) {
  torch::manual_seed(static_cast<std::uint64_t>(100 + part));
  torch::nn::Sequential net(torch::nn::Linear(PIPELINE_WIDTH, PIPELINE_WIDTH), torch::nn::Tanh(),
                            torch::nn::LayerNorm(torch::nn::LayerNormOptions({PIPELINE_WIDTH})),
                            torch::nn::Dropout(dropout), torch::nn::Linear(PIPELINE_WIDTH, PIPELINE_WIDTH));
  net->to(at::kDouble);
  return net;
}

inline at::Tensor squared_error(const at::Tensor& output, const at::Tensor& target) {
  return torch::nn::functional::mse_loss(output, target);
}

inline at::Tensor pipeline_rows(std::int64_t rows, std::uint64_t seed) {
  return random_values({rows, PIPELINE_WIDTH}, seed);
}

struct PartNets {
  PartNets(const PipelineShape& shape, int rank, double dropout = 0) {
    for (int chunk = 0; chunk < shape.virtual_stages; ++chunk) {
      parts.push_back(shape.part_of(rank, chunk));
      nets.push_back(pipeline_part(parts.back(), dropout));
    }
  }
  std::vector<PipelineStage> stages() const { return std::vector<PipelineStage>(nets.begin(), nets.end()); }
  std::vector<at::Tensor> gradients() const {
    std::vector<at::Tensor> all;
    for (const auto& net : nets)
      for (const at::Tensor& parameter : net->parameters()) all.push_back(parameter.grad());
    return all;
  }
  void zero_grad() {
    for (auto& net : nets) net->zero_grad();
  }
  std::vector<int> parts;
  std::vector<torch::nn::Sequential> nets;
};

struct Whole {
  explicit Whole(int count) {
    for (int part = 0; part < count; ++part) nets.push_back(pipeline_part(part));
  }
  at::Tensor forward(at::Tensor x) {
    for (auto& net : nets) x = net->forward(x);
    return x;
  }
  double step(const at::Tensor& x, const at::Tensor& y) {
    for (auto& net : nets) net->zero_grad();
    const at::Tensor loss = squared_error(forward(x), y);
    loss.backward();
    return loss.item<double>();
  }
  // Those of the parts that a rank holds are its gradients, within `tolerance`.
  void expect_equal(const PartNets& mine, double tolerance, const std::string& where) {
    for (std::size_t k = 0; k < mine.parts.size(); ++k) {
      const auto expected = nets[static_cast<std::size_t>(mine.parts[k])]->named_parameters();
      for (const auto& entry : mine.nets[k]->named_parameters()) {
        ASSERT_TRUE(entry.value().grad().defined())
            << where << ", part " << mine.parts[k] << ' ' << entry.key();
        ASSERT_TRUE(at::allclose(entry.value().grad(), expected[entry.key()].grad(), tolerance, tolerance))
            << where << ", part " << mine.parts[k] << ' ' << entry.key();
      }
    }
  }
  std::vector<torch::nn::Sequential> nets;
};

// Of p ranks with two chunks each: small parts first, large ones last. The nets' parts are all alike, so this
// is wrong, which must make no difference but in time.
inline PipelineWork unequal_parts(int p) {
  PipelineWork work{.part_sizes = std::vector<double>(static_cast<std::size_t>(2 * p), 2),
                    .backward_input = 1.5};
  work.part_sizes.front() = 1;
  work.part_sizes.back() = 3;
  return work;
}

// All schedules of p ranks: GPipe, 1F1B, interleaved 1F1B with 2 chunks, ZB-H1, and ZB-V in two orders.
inline std::vector<PipelineShape> runnable_shapes(int p, int m,
                                                  RecomputeMode recompute = RecomputeMode::NEVER) {
  using enum PipelineScheduleKind;
  return {{GPIPE, p, m, 1, recompute},       {ONE_F_ONE_B, p, m, 1, recompute},
          {ONE_F_ONE_B, p, m, 2, recompute}, {ZB_H1, p, m, 1, recompute},
          {ZB_V, p, m, 2, recompute},        {ZB_V, p, m, 2, recompute, unequal_parts(p)}};
}

inline PipelineOptions options_of(const PipelineShape& shape) {
  return {.schedule = shape.kind,
          .micro_batches = shape.micro_batches,
          .recompute = shape.recompute,
          .work = shape.work};
}

}  // namespace lockstep::testing

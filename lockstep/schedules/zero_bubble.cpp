#include "lockstep/schedules/zero_bubble.h"

#include <algorithm>
#include <array>
#include <utility>

#include "lockstep/schedules/pipeline_timeline.h"
#include "lockstep/schedules/simulated_v.h"

namespace lockstep {
namespace {

using enum PipelineActionKind;

// Rank r has one forward more than 1F1B at the beginning, and r gradients of parameters that wait. Every rank
// has the activations of p micro-batches then.
PipelineActions h1_row(const PipelineShape& shape, int rank) {
  const int m = shape.micro_batches;
  const int first = std::min(shape.stages - rank, m);
  PipelineActions actions;
  for (int i = 0; i < first; ++i) actions.push_back({FORWARD, i});
  for (int i = 0; i < m; ++i) {
    actions.push_back({BACKWARD_INPUT, i});
    if (i >= rank) actions.push_back({BACKWARD_WEIGHT, i - rank});
    if (first + i < m) actions.push_back({FORWARD, first + i});
  }
  for (int i = std::max(0, m - rank); i < m; ++i) actions.push_back({BACKWARD_WEIGHT, i});
  return actions;
}

// A rank's row of ZB_V as it is written down. Each kind of action takes its chunk's next micro-batch.
class VRow {
 public:
  explicit VRow(int micro_batches) : micro_batches_(micro_batches) {}

  void forward(int chunk) { add(FORWARD, forwards_, chunk); }
  void input(int chunk) { add(BACKWARD_INPUT, inputs_, chunk); }
  void weight(int chunk) { add(BACKWARD_WEIGHT, weights_, chunk); }
  void backward(int chunk) {
    input(chunk);
    weight(chunk);
  }
  int forwards(int chunk) const { return forwards_[static_cast<std::size_t>(chunk)]; }
  bool has_weight_left(int chunk) const {
    return weights_[static_cast<std::size_t>(chunk)] < inputs_[static_cast<std::size_t>(chunk)];
  }
  PipelineActions actions;

 private:
  using Next = std::array<int, 2>;  // micro-batch, by chunk
  void add(PipelineActionKind kind, Next& next, int chunk) {
    const int i = next[static_cast<std::size_t>(chunk)]++;
    if (i < micro_batches_) actions.push_back({kind, i, chunk});
  }

  const int micro_batches_;
  Next forwards_{}, inputs_{}, weights_{};
};

// The row of 2p - 1 micro-batches, or of m if that is more. Those beyond m are left out.
PipelineActions v_row(const PipelineShape& shape, int rank) {
  const int p = shape.stages, count = std::max(2 * p - 1, shape.micro_batches);
  VRow row(shape.micro_batches);
  // Until the first micro-batch has come back: down the V, then down and up in turn.
  for (int i = 0; i < 2 * (p - rank) - 1; ++i) row.forward(0);
  for (int i = 0; i < rank; ++i) {
    row.forward(1);
    row.forward(0);
  }
  // The upper half goes on while the gradient comes round the V.
  for (int i = 0; i < p - rank; ++i) {
    row.forward(1);
    row.backward(1);
  }
  while (row.forwards(1) < row.forwards(0) || row.forwards(0) < count) {
    if (row.forwards(0) < count) row.forward(0);
    row.backward(0);
    row.forward(1);
    row.backward(1);
  }
  // Gradients of parameters wait until the ranks below have their gradients of inputs.
  for (int i = 0; i < rank; ++i) {
    row.input(0);
    row.input(1);
  }
  for (int i = 0; i < p - rank; ++i) row.backward(0);
  for (const int chunk : {1, 0})
    while (row.has_weight_left(chunk)) row.weight(chunk);
  return row.actions;
}

// All ranks' rows, in which the backward of the first part is whole.
template <typename Row> std::vector<PipelineActions> rows_of(const PipelineShape& shape, const Row& row) {
  std::vector<PipelineActions> ranks;
  for (int rank = 0; rank < shape.stages; ++rank) ranks.push_back(row(shape, rank));
  std::erase_if(ranks[0], [](const PipelineAction& action) {
    return action.kind == BACKWARD_INPUT && action.chunk == 0;
  });
  for (PipelineAction& action : ranks[0])
    if (action.kind == BACKWARD_WEIGHT && action.chunk == 0) action.kind = BACKWARD;
  return ranks;
}

bool is_even(const PipelineWork& work) {
  const std::vector<double>& sizes = work.part_sizes;
  return std::all_of(sizes.begin(), sizes.end(), [&](double size) { return size == sizes.front(); });
}

bool is_regular(const PipelineShape& shape) {
  const PipelineWork& work = shape.work;
  return shape.recompute != RecomputeMode::NEVER ||
         (is_even(work) && work.forward == work.backward_input && work.forward == work.backward_weight &&
          shape.micro_batches >= 2 * shape.stages - 1);
}

}  // namespace

std::vector<PipelineActions> zero_bubble_h1(const PipelineShape& shape) { return rows_of(shape, h1_row); }

std::vector<PipelineActions> zero_bubble_v(const PipelineShape& shape) {
  std::vector<PipelineActions> best = rows_of(shape, v_row);
  if (is_regular(shape)) return best;
  const auto makespan = [&](const std::vector<PipelineActions>& ranks) {
    return pipeline_timeline({.shape = shape, .ranks = ranks}).makespan();
  };
  const double most = (is_even(shape.work) ? 2 : 3) * shape.stages;
  const double least = least_makespan(shape) * (1 + 1e-9);
  double shortest = makespan(best);
  for (const PipelineActionKind kind : {BACKWARD_INPUT, FORWARD}) {
    for (const auto& [inputs, weights] : {std::pair(1, 1), {1, 0}, {0, 1}, {0, 0}}) {
      if (shortest <= least) return best;
      std::vector<PipelineActions> computed = simulated_v(shape, most, {kind, inputs, weights});
      const double time = makespan(computed);
      if (time >= shortest) continue;
      shortest = time;
      best = std::move(computed);
    }
  }
  return best;
}

}  // namespace lockstep

#include "lockstep/schedules/pipeline_schedule.h"

#include <algorithm>
#include <array>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

using PipelineActions = std::vector<PipelineAction>;
using enum PipelineActionKind;

void check_pipeline(const PipelineShape& shape) {
  const auto refuse = [](const char* name, int value) {
    if (value < 1)
      throw InvalidArgument(str("pipeline_schedule: ", name, " is ", value, "; it is at least 1"));
  };
  refuse("stages", shape.stages);
  refuse("micro_batches", shape.micro_batches);
  refuse("virtual_stages", shape.virtual_stages);
  if (shape.kind == PipelineScheduleKind::ZB_V) {
    if (shape.virtual_stages == 2) return;
    throw InvalidArgument(
        str("pipeline_schedule: zb-v has two model chunks on each rank, and virtual_stages is ",
            shape.virtual_stages));
  }
  if (shape.virtual_stages > 1 && shape.kind != PipelineScheduleKind::ONE_F_ONE_B) {
    throw InvalidArgument(str("pipeline_schedule: ", name_of(shape.kind),
                              " has one model chunk on each rank, not ", shape.virtual_stages,
                              "; virtual stages are for 1f1b"));
  }
}

// How many micro-batches go through a chunk before the rank turns to its next chunk, group by group.
std::vector<int> group_sizes(const PipelineShape& shape) {
  const int groups = std::max(1, shape.micro_batches / shape.stages);
  const int each = shape.micro_batches / groups;
  const int larger = shape.micro_batches % groups;
  std::vector<int> sizes(static_cast<std::size_t>(groups), each);
  std::fill_n(sizes.begin(), larger, each + 1);
  return sizes;
}

// The forwards of a rank in their order. The backwards have the same order with the chunks reversed.
PipelineActions forward_order(const PipelineShape& shape) {
  PipelineActions order;
  int first = 0;
  for (const int size : group_sizes(shape)) {
    for (int chunk = 0; chunk < shape.virtual_stages; ++chunk)
      for (int i = 0; i < size; ++i) order.push_back({FORWARD, first + i, chunk});
    first += size;
  }
  return order;
}

PipelineActions gpipe(const PipelineShape& shape) {
  PipelineActions actions;
  for (int i = 0; i < shape.micro_batches; ++i) actions.push_back({FORWARD, i});
  for (int i = shape.micro_batches - 1; i >= 0; --i) actions.push_back({BACKWARD, i});
  return actions;
}

std::size_t warm_up(const PipelineShape& shape, int rank) {
  const int after = shape.stages - rank - 1;
  if (shape.virtual_stages == 1) return static_cast<std::size_t>(after);
  return static_cast<std::size_t>(2 * after + (shape.virtual_stages - 1) * group_sizes(shape).front());
}

PipelineActions one_f_one_b(const PipelineShape& shape, int rank) {
  const PipelineActions forwards = forward_order(shape);
  const std::size_t first = std::min(warm_up(shape, rank), forwards.size());
  PipelineActions actions(forwards.begin(), forwards.begin() + static_cast<std::ptrdiff_t>(first));
  for (std::size_t k = 0; k < forwards.size(); ++k) {
    if (first + k < forwards.size()) actions.push_back(forwards[first + k]);
    actions.push_back({BACKWARD, forwards[k].micro_batch, shape.virtual_stages - 1 - forwards[k].chunk});
  }
  return actions;
}

// Rank r has one forward more than 1F1B at the beginning, and r gradients of parameters that wait. Every rank
// has the activations of p micro-batches then.
PipelineActions zb_h1(const PipelineShape& shape, int rank) {
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
PipelineActions zb_v(const PipelineShape& shape, int rank) {
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

PipelineActions actions_of(const PipelineShape& shape, int rank) {
  switch (shape.kind) {
    case PipelineScheduleKind::GPIPE: return gpipe(shape);
    case PipelineScheduleKind::ONE_F_ONE_B: return one_f_one_b(shape, rank);
    case PipelineScheduleKind::ZB_H1: return zb_h1(shape, rank);
    case PipelineScheduleKind::ZB_V: return zb_v(shape, rank);
  }
  throw InternalError("pipeline_schedule: unknown kind");
}

bool is_recomputed(const PipelineShape& shape, const PipelineAction& action) {
  if (action.kind != BACKWARD && action.kind != BACKWARD_INPUT) return false;
  return shape.recompute == RecomputeMode::ALWAYS ||
         (shape.recompute == RecomputeMode::EXCEPT_LAST && action.micro_batch + 1 < shape.micro_batches);
}

PipelineActions with_recompute(const PipelineShape& shape, const PipelineActions& actions) {
  PipelineActions all;
  for (const PipelineAction& action : actions) {
    if (is_recomputed(shape, action)) all.push_back({RECOMPUTE, action.micro_batch, action.chunk});
    all.push_back(action);
  }
  return all;
}

char letter_of(PipelineActionKind kind) {
  switch (kind) {
    case FORWARD: return 'F';
    case RECOMPUTE: return 'R';
    case BACKWARD: return 'B';
    case BACKWARD_INPUT: return 'I';
    case BACKWARD_WEIGHT: return 'W';
  }
  return '?';
}

// a to z, then aa, ab, ...
std::string letters_of(int chunk) {
  std::string letters;
  for (int rest = chunk + 1; rest > 0; rest = (rest - 1) / 26)
    letters.insert(letters.begin(), static_cast<char>('a' + (rest - 1) % 26));
  return letters;
}

}  // namespace

std::string_view name_of(PipelineScheduleKind kind) {
  switch (kind) {
    case PipelineScheduleKind::GPIPE: return "gpipe";
    case PipelineScheduleKind::ONE_F_ONE_B: return "1f1b";
    case PipelineScheduleKind::ZB_H1: return "zb-h1";
    case PipelineScheduleKind::ZB_V: return "zb-v";
  }
  return "unknown";
}

std::string_view name_of(RecomputeMode mode) {
  switch (mode) {
    case RecomputeMode::NEVER: return "never";
    case RecomputeMode::EXCEPT_LAST: return "except_last";
    case RecomputeMode::ALWAYS: return "always";
  }
  return "unknown";
}

PipelineSchedule pipeline_schedule(const PipelineShape& shape) {
  check_pipeline(shape);
  PipelineSchedule schedule{.shape = shape, .ranks = {}};
  for (int rank = 0; rank < shape.stages; ++rank)
    schedule.ranks.push_back(with_recompute(shape, actions_of(shape, rank)));
  return schedule;
}

std::string label_of(const PipelineAction& action, bool with_chunk) {
  return str(letter_of(action.kind), action.micro_batch, with_chunk ? letters_of(action.chunk) : "");
}

std::string to_text(const PipelineShape& shape) {
  const auto counted = [](int count, const char* name) {
    return str(count, ' ', name, count == 1 ? "" : "s");
  };
  std::string text = str(name_of(shape.kind), ": ", counted(shape.stages, "stage"), ", ",
                         counted(shape.micro_batches, "micro-batch"));
  if (shape.micro_batches > 1) text.insert(text.size() - 1, "e");
  if (shape.virtual_stages > 1) text += str(", ", shape.virtual_stages, " chunks a rank");
  if (shape.recompute != RecomputeMode::NEVER) text += str(", recompute ", name_of(shape.recompute));
  return text;
}

std::string to_text(const PipelineSchedule& schedule) {
  std::string text = to_text(schedule.shape) + '\n';
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    text += str("rank ", rank, ' ');
    for (const PipelineAction& action : schedule.ranks[rank])
      text += str(' ', label_of(action, schedule.shape.virtual_stages > 1));
    text += '\n';
  }
  return text;
}

}  // namespace lockstep

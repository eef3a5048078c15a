#include "lockstep/schedules/pipeline_schedule.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/schedules/joined_backwards.h"
#include "lockstep/schedules/zero_bubble.h"

namespace lockstep {
namespace {

using enum PipelineActionKind;

void check_work(const PipelineShape& shape) {
  const auto refuse = [](const char* name, double time, bool is_fine) {
    if (!is_fine || !std::isfinite(time))
      throw InvalidArgument(str("pipeline_schedule: the work of ", name, " is ", time,
                                "; it is finite and not negative, and that of a forward is above 0"));
  };
  const PipelineWork& work = shape.work;
  refuse("forward", work.forward, work.forward > 0);
  refuse("backward_input", work.backward_input, work.backward_input >= 0);
  refuse("backward_weight", work.backward_weight, work.backward_weight >= 0);
  if (work.part_sizes.empty()) return;
  const std::int64_t parts = std::int64_t{shape.stages} * shape.virtual_stages;
  if (static_cast<std::int64_t>(work.part_sizes.size()) != parts)
    throw InvalidArgument(str("pipeline_schedule: part_sizes has ", work.part_sizes.size(),
                              " parts; expected ", parts, ", ", shape.virtual_stages, " for each of ",
                              shape.stages, " stages"));
  double sum = 0;
  for (const double size : work.part_sizes) {
    sum += size;
    if (!(size >= 0) || !std::isfinite(sum))
      throw InvalidArgument(
          str("pipeline_schedule: part_sizes has ", size, "; sizes are finite and not negative"));
  }
  if (sum == 0) throw InvalidArgument("pipeline_schedule: all part_sizes are 0; expected one above 0");
}

void check_pipeline(const PipelineShape& shape) {
  const auto refuse = [](const char* name, int value) {
    if (value < 1)
      throw InvalidArgument(str("pipeline_schedule: ", name, " is ", value, "; it is at least 1"));
  };
  refuse("stages", shape.stages);
  refuse("micro_batches", shape.micro_batches);
  refuse("virtual_stages", shape.virtual_stages);
  check_work(shape);
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

std::vector<PipelineActions> actions_of(const PipelineShape& shape) {
  std::vector<PipelineActions> ranks;
  switch (shape.kind) {
    case PipelineScheduleKind::GPIPE:
      return std::vector(static_cast<std::size_t>(shape.stages), gpipe(shape));
    case PipelineScheduleKind::ONE_F_ONE_B:
      for (int rank = 0; rank < shape.stages; ++rank) ranks.push_back(one_f_one_b(shape, rank));
      return ranks;
    case PipelineScheduleKind::ZB_H1: return zero_bubble_h1(shape);
    case PipelineScheduleKind::ZB_V: return zero_bubble_v(shape);
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

double PipelineWork::size_of(int part) const {
  if (part_sizes.empty()) return 1;
  const double sum = std::accumulate(part_sizes.begin(), part_sizes.end(), 0.0);
  return part_sizes[static_cast<std::size_t>(part)] * static_cast<double>(part_sizes.size()) / sum;
}

PipelineSchedule pipeline_schedule(const PipelineShape& shape) {
  return with_joined_backwards(split_schedule(shape));
}

PipelineSchedule split_schedule(const PipelineShape& shape) {
  check_pipeline(shape);
  PipelineSchedule schedule{.shape = shape, .ranks = {}};
  for (const PipelineActions& actions : actions_of(shape))
    schedule.ranks.push_back(with_recompute(shape, actions));
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
  for (std::size_t part = 0; part < shape.work.part_sizes.size(); ++part)
    text += str(part == 0 ? ", parts of " : " ", shape.work.part_sizes[part]);
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

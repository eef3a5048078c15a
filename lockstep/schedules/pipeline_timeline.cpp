#include "lockstep/schedules/pipeline_timeline.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

using enum PipelineActionKind;

constexpr double NOT_YET = -1;

// How long a rank takes for the action at a place in its row.
using Duration = std::function<double(int rank, std::size_t place)>;

void check_measured(const PipelineSchedule& schedule, const std::vector<std::vector<double>>& measured) {
  if (measured.size() != schedule.ranks.size())
    throw InvalidArgument(str("pipeline_timeline: measured times of ", measured.size(),
                              " ranks for a schedule of ", schedule.ranks.size()));
  for (std::size_t rank = 0; rank < measured.size(); ++rank) {
    if (measured[rank].size() != schedule.ranks[rank].size())
      throw InvalidArgument(str("pipeline_timeline: rank ", rank, " has ", schedule.ranks[rank].size(),
                                " actions, but ", measured[rank].size(), " measured times"));
    for (const double time : measured[rank])
      if (!std::isfinite(time) || time < 0)
        throw InvalidArgument(str("pipeline_timeline: a measured time of rank ", rank, " is ", time,
                                  "; times are finite and not negative"));
  }
}

void check_times(const PipelineShape& shape, const PipelineTimes& times) {
  const auto refuse = [](const char* name, double time, bool is_fine) {
    if (!is_fine || !std::isfinite(time))
      throw InvalidArgument(str("pipeline_timeline: the time ", name, " is ", time,
                                "; times are finite and not negative, and that of a forward is above 0"));
  };
  refuse("forward", times.forward, times.forward > 0);
  refuse("backward_input", times.backward_input, times.backward_input >= 0);
  refuse("backward_weight", times.backward_weight, times.backward_weight >= 0);
  refuse("transfer", times.transfer, times.transfer >= 0);
  for (const double size : times.sizes) refuse("factor of a micro-batch", size, size > 0);
  if (!times.sizes.empty() && times.sizes.size() != static_cast<std::size_t>(shape.micro_batches)) {
    throw InvalidArgument(str("pipeline_timeline: sizes of ", times.sizes.size(),
                              " micro-batches for a schedule of ", shape.micro_batches));
  }
}

void check_table(const PipelineSchedule& schedule) {
  const PipelineShape& shape = schedule.shape;
  if (schedule.ranks.size() != static_cast<std::size_t>(shape.stages))
    throw InvalidArgument(
        str("pipeline_timeline: a table of ", schedule.ranks.size(), " ranks for ", shape.stages, " stages"));
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank)
    for (const PipelineAction& action : schedule.ranks[rank])
      if (action.micro_batch < 0 || action.micro_batch >= shape.micro_batches || action.chunk < 0 ||
          action.chunk >= shape.virtual_stages)
        throw InvalidArgument(str("pipeline_timeline: rank ", rank, " has micro-batch ", action.micro_batch,
                                  " of chunk ", action.chunk, "; there are ", shape.micro_batches,
                                  " micro-batches and ", shape.virtual_stages, " chunks"));
}

// Carries out the table: each rank its actions in their order, as far as their inputs are there.
class PipelineRun {
 public:
  PipelineRun(const PipelineSchedule& schedule, Duration duration, double transfer)
      : schedule_(schedule),
        duration_(std::move(duration)),
        transfer_(transfer),
        outputs_(cells(), NOT_YET),
        gradients_(cells(), NOT_YET) {
    timeline_.shape = schedule.shape;
    timeline_.ranks.resize(schedule.ranks.size());
  }

  PipelineTimeline run() {
    for (bool has_moved = true; has_moved;) {
      has_moved = false;
      for (int rank = 0; rank < schedule_.shape.stages; ++rank)
        while (next(rank)) has_moved = true;
    }
    for (std::size_t rank = 0; rank < schedule_.ranks.size(); ++rank) {
      const std::size_t done = timeline_.ranks[rank].actions.size();
      if (done < schedule_.ranks[rank].size())
        throw InvalidArgument(str("pipeline_timeline: rank ", rank, " waits forever before action ", done,
                                  ", ", label_of(schedule_.ranks[rank][done], true),
                                  ": no rank can compute what it needs"));
    }
    return std::move(timeline_);
  }

 private:
  std::size_t cells() const {
    return static_cast<std::size_t>(schedule_.shape.parts()) *
           static_cast<std::size_t>(schedule_.shape.micro_batches);
  }
  std::size_t cell(int part, int micro_batch) const {
    return static_cast<std::size_t>(part) * static_cast<std::size_t>(schedule_.shape.micro_batches) +
           static_cast<std::size_t>(micro_batch);
  }

  // When a value that part `from` computes is at part `to`; NOT_YET passes through.
  double arrival(double computed, int from, int to) const {
    const bool stays = schedule_.shape.rank_of(from) == schedule_.shape.rank_of(to);
    return computed == NOT_YET || stays ? computed : computed + transfer_;
  }

  // When all that the action needs is there, or NOT_YET.
  double ready(const PipelineAction& action, int part) const {
    const int i = action.micro_batch;
    const double output = outputs_[cell(part, i)];
    if (action.kind == FORWARD) return part == 0 ? 0 : arrival(outputs_[cell(part - 1, i)], part - 1, part);
    if (action.kind == RECOMPUTE) return output;
    if (action.kind == BACKWARD_WEIGHT) return gradients_[cell(part, i)];
    if (part + 1 == schedule_.shape.parts() || output == NOT_YET) return output;
    return arrival(gradients_[cell(part + 1, i)], part + 1, part);
  }

  // Runs the rank's next action. Returns false if it has none left, or must wait.
  bool next(int rank) {
    const auto& actions = schedule_.ranks[static_cast<std::size_t>(rank)];
    RankTimeline& mine = timeline_.ranks[static_cast<std::size_t>(rank)];
    if (mine.actions.size() == actions.size()) return false;
    const PipelineAction& action = actions[mine.actions.size()];
    const int part = schedule_.shape.part_of(rank, action.chunk);
    const double input = ready(action, part);
    if (input == NOT_YET) return false;
    const double start = std::max(input, mine.actions.empty() ? 0 : mine.actions.back().end);
    const double time = duration_(rank, mine.actions.size());
    const double end = start + time;
    if (action.kind == FORWARD) outputs_[cell(part, action.micro_batch)] = end;
    if (action.kind == BACKWARD || action.kind == BACKWARD_INPUT)
      gradients_[cell(part, action.micro_batch)] = end;
    mine.work += time;
    mine.actions.push_back({action, start, end});
    return true;
  }

  const PipelineSchedule& schedule_;
  Duration duration_;
  double transfer_;
  std::vector<double> outputs_;    // by part and micro-batch: when its forward has ended
  std::vector<double> gradients_;  // when its input's gradient is computed
  PipelineTimeline timeline_;
};

// Of actions whose time follows from their kind, their part and their micro-batch.
Duration duration_of(const PipelineSchedule& schedule, const PipelineTimes& times) {
  const PipelineShape& shape = schedule.shape;
  std::vector<double> part_sizes;
  for (int part = 0; part < shape.parts(); ++part) part_sizes.push_back(shape.work.size_of(part));
  return [&schedule, &times, part_sizes](int rank, std::size_t place) {
    const PipelineAction& action = schedule.ranks[static_cast<std::size_t>(rank)][place];
    const int part = schedule.shape.part_of(rank, action.chunk);
    const double size = times.sizes.empty() ? 1 : times.sizes[static_cast<std::size_t>(action.micro_batch)];
    const double scale = size * part_sizes[static_cast<std::size_t>(part)] / schedule.shape.virtual_stages;
    switch (action.kind) {
      case FORWARD:
      case RECOMPUTE: return times.forward * scale;
      case BACKWARD: return (times.backward_input + times.backward_weight) * scale;
      case BACKWARD_INPUT: return times.backward_input * scale;
      case BACKWARD_WEIGHT: return times.backward_weight * scale;
    }
    throw InternalError("pipeline_timeline: unknown action");
  };
}

using Held = std::set<std::pair<int, int>>;  // micro-batch and chunk

// Adds what the rank keeps. An action that is recomputed later keeps its inputs alone.
void add_peaks(RankTimeline& rank, const std::vector<double>& chunk_sizes) {
  Held recomputed;
  for (const TimedAction& timed : rank.actions)
    if (timed.action.kind == RECOMPUTE) recomputed.emplace(timed.action.micro_batch, timed.action.chunk);
  int in_flight = 0, activations = 0;
  double size = 0;
  for (const auto& [action, start, end] : rank.actions) {
    const bool is_later = action.kind == FORWARD && recomputed.contains({action.micro_batch, action.chunk});
    if (action.kind == FORWARD) ++in_flight;
    const double chunk_size = chunk_sizes[static_cast<std::size_t>(action.chunk)];
    if (action.kind == RECOMPUTE || (action.kind == FORWARD && !is_later)) {
      ++activations;
      size += chunk_size;
    }
    rank.peak_in_flight = std::max(rank.peak_in_flight, in_flight);
    rank.peak_activations = std::max(rank.peak_activations, activations);
    rank.peak_size = std::max(rank.peak_size, size);
    if (action.kind == BACKWARD || action.kind == BACKWARD_WEIGHT) {
      --in_flight;
      --activations;
      size -= chunk_size;
    }
  }
}

PipelineTimeline with_peaks(PipelineTimeline timeline) {
  const PipelineShape& shape = timeline.shape;
  for (int rank = 0; rank < shape.stages; ++rank) {
    std::vector<double> sizes;
    for (int chunk = 0; chunk < shape.virtual_stages; ++chunk)
      sizes.push_back(shape.work.size_of(shape.part_of(rank, chunk)));
    add_peaks(timeline.ranks[static_cast<std::size_t>(rank)], sizes);
  }
  return timeline;
}

}  // namespace

double PipelineTimeline::makespan() const {
  double last = 0;
  for (const RankTimeline& rank : ranks)
    if (!rank.actions.empty()) last = std::max(last, rank.actions.back().end);
  return last;
}

double PipelineTimeline::bubble() const {
  const double total = makespan() * static_cast<double>(ranks.size());
  double work = 0;
  for (const RankTimeline& rank : ranks) work += rank.work;
  return total > 0 ? (total - work) / total : 0;
}

PipelineTimeline pipeline_timeline(const PipelineSchedule& schedule) {
  const PipelineWork& work = schedule.shape.work;
  return pipeline_timeline(schedule, {.forward = work.forward,
                                      .backward_input = work.backward_input,
                                      .backward_weight = work.backward_weight,
                                      .sizes = {}});
}

PipelineTimeline pipeline_timeline(const PipelineSchedule& schedule, const PipelineTimes& times) {
  check_times(schedule.shape, times);
  check_table(schedule);
  return with_peaks(PipelineRun(schedule, duration_of(schedule, times), times.transfer).run());
}

PipelineTimeline pipeline_timeline(const PipelineSchedule& schedule,
                                   const std::vector<std::vector<double>>& measured) {
  check_table(schedule);
  check_measured(schedule, measured);
  const auto duration = [&](int rank, std::size_t place) {
    return measured[static_cast<std::size_t>(rank)][place];
  };
  return with_peaks(PipelineRun(schedule, duration, 0).run());
}

double least_makespan(const PipelineShape& shape) {
  const PipelineWork& work = shape.work;
  const double all = work.forward + work.backward_input + work.backward_weight;
  double least = 0, way = 0;
  for (int rank = 0; rank < shape.stages; ++rank) {
    double size = 0;
    for (int chunk = 0; chunk < shape.virtual_stages; ++chunk)
      size += work.size_of(shape.part_of(rank, chunk));
    least = std::max(least, way * work.forward + size * all * shape.micro_batches);
    way += work.size_of(rank);
  }
  return least / shape.virtual_stages;
}

}  // namespace lockstep

#include "lockstep/schedules/simulated_v.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using enum PipelineActionKind;

class SimulatedV {
 public:
  SimulatedV(const PipelineShape& shape, double most, VPreference preference)
      : shape_(shape), preference_(preference), computed_(parts()), gradients_(parts()) {
    for (int rank = 0; rank < shape.stages; ++rank) {
      Rank mine;
      for (const int chunk : {0, 1}) mine.sizes[at(chunk)] = shape.work.size_of(shape.part_of(rank, chunk));
      mine.most = std::max(most, mine.sizes[0] + mine.sizes[1]) * (1 + ROUNDING);
      ranks_.push_back(std::move(mine));
    }
  }

  std::vector<PipelineActions> run() {
    for (int rank = 0; rank < shape_.stages; ++rank) look(rank);
    while (!waiting_.empty()) {
      const int rank = waiting_.begin()->second;
      const int other = act(rank);
      look(rank);
      if (other != rank) look(other);
    }
    std::vector<PipelineActions> rows;
    for (Rank& rank : ranks_) {
      if (rank.weights != Counts{shape_.micro_batches, shape_.micro_batches})
        throw InternalError("simulated_v: a rank waits forever");
      rows.push_back(std::move(rank.actions));
    }
    return rows;
  }

 private:
  static constexpr double ROUNDING = 1e-9;
  using Counts = std::array<int, 2>;  // micro-batches, by chunk

  struct Choice {
    double start = 0;
    PipelineActionKind kind = FORWARD;
    int chunk = 0;
  };
  struct Rank {
    std::array<double, 2> sizes{};
    double most = 0, held = 0;  // sizes of what is between forward and gradient of weights
    double time = 0;            // when it is free
    Counts forwards{}, inputs{}, weights{};
    std::optional<Choice> next;
    PipelineActions actions;
  };

  static std::size_t at(int index) { return static_cast<std::size_t>(index); }
  std::size_t parts() const { return at(shape_.parts()); }

  double duration(PipelineActionKind kind, int part) const {
    const PipelineWork& work = shape_.work;
    if (kind == FORWARD) return work.forward;
    if (kind == BACKWARD_INPUT) return work.backward_input;
    return work.backward_weight + (part == 0 ? work.backward_input : 0);
  }

  // The first time at which the action's input is there, or nothing.
  static std::optional<double> arrived(const std::vector<double>& times, int micro_batch) {
    if (at(micro_batch) >= times.size()) return std::nullopt;
    return times[at(micro_batch)];
  }

  // Whether the rank has room for the activations of a forward, and of what must follow: the chunk that
  // comes back goes before all that would begin.
  static bool has_room(const Rank& rank, int chunk) {
    if (rank.held + rank.sizes[at(chunk)] > rank.most) return false;
    if (chunk == 1) return true;
    const int not_back = rank.forwards[0] + 1 - rank.forwards[1];
    return not_back * rank.sizes[0] + rank.sizes[1] <= rank.most;
  }

  std::optional<double> ready(const Rank& rank, int part, PipelineActionKind kind, int chunk) const {
    const int last = shape_.parts() - 1;
    if (kind == BACKWARD_WEIGHT) return arrived(gradients_[at(std::max(part, 1))], rank.weights[at(chunk)]);
    if (kind == BACKWARD_INPUT) {
      if (part == 0) return std::nullopt;
      const int i = rank.inputs[at(chunk)];
      if (i >= rank.forwards[at(chunk)]) return std::nullopt;
      return part == last ? arrived(computed_[at(part)], i) : arrived(gradients_[at(part + 1)], i);
    }
    const int i = rank.forwards[at(chunk)];
    if (i >= shape_.micro_batches || !has_room(rank, chunk)) return std::nullopt;
    return part == 0 ? 0 : arrived(computed_[at(part - 1)], i);
  }

  // Chooses the rank's next action.
  void look(int rank) {
    Rank& mine = ranks_[at(rank)];
    if (mine.next) waiting_.erase({mine.next->start, rank});
    mine.next.reset();
    std::array<std::pair<PipelineActionKind, int>, 3> kinds = {
        {{BACKWARD_INPUT, preference_.inputs}, {FORWARD, 1}, {BACKWARD_WEIGHT, preference_.weights}}};
    if (preference_.kind == FORWARD) std::swap(kinds[0], kinds[1]);
    for (const auto& [kind, preferred] : kinds) {
      for (const int chunk : {preferred, 1 - preferred}) {
        const auto input = ready(mine, shape_.part_of(rank, chunk), kind, chunk);
        if (!input) continue;
        const double start = std::max(mine.time, *input);
        if (!mine.next || start < mine.next->start) mine.next = Choice{start, kind, chunk};
      }
    }
    if (mine.next) waiting_.insert({mine.next->start, rank});
  }

  // Carries out the rank's next action. Returns the rank that gets its result.
  int act(int rank) {
    Rank& mine = ranks_[at(rank)];
    const Choice choice = *mine.next;
    const int part = shape_.part_of(rank, choice.chunk);
    mine.time = choice.start + mine.sizes[at(choice.chunk)] * duration(choice.kind, part);
    int to = part;
    if (choice.kind == FORWARD) {
      mine.actions.push_back({FORWARD, mine.forwards[at(choice.chunk)]++, choice.chunk});
      mine.held += mine.sizes[at(choice.chunk)];
      computed_[at(part)].push_back(mine.time);
      to = std::min(part + 1, shape_.parts() - 1);
    } else if (choice.kind == BACKWARD_INPUT) {
      mine.actions.push_back({BACKWARD_INPUT, mine.inputs[at(choice.chunk)]++, choice.chunk});
      gradients_[at(part)].push_back(mine.time);
      to = std::max(part - 1, 0);
    } else {
      mine.actions.push_back(
          {part == 0 ? BACKWARD : BACKWARD_WEIGHT, mine.weights[at(choice.chunk)]++, choice.chunk});
      mine.held -= mine.sizes[at(choice.chunk)];
    }
    return shape_.rank_of(to);
  }

  const PipelineShape& shape_;
  const VPreference preference_;
  std::vector<std::vector<double>> computed_, gradients_;  // by part and micro-batch: when they are there
  std::vector<Rank> ranks_;
  std::set<std::pair<double, int>> waiting_;  // start of each rank's next action
};

}  // namespace

std::vector<PipelineActions> simulated_v(const PipelineShape& shape, double most, VPreference preference) {
  return SimulatedV(shape, most, preference).run();
}

}  // namespace lockstep

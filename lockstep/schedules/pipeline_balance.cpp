#include "lockstep/schedules/pipeline_balance.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/schedules/joined_backwards.h"
#include "lockstep/schedules/pipeline_timeline.h"

namespace lockstep {
namespace {

// What a cut costs: less is better, the time before the unevenness.
struct CutCost {
  double time = 0;
  double squares = 0;  // sum of the squared sizes of parts
  static constexpr double ROUNDING = 1e-9;

  bool operator<(const CutCost& other) const {
    if (time < other.time * (1 - ROUNDING)) return true;
    return time <= other.time * (1 + ROUNDING) && squares < other.squares * (1 - ROUNDING);
  }
};

// The cost of each part.
std::vector<double> sizes_of(const std::vector<std::int64_t>& layers, const std::vector<double>& costs) {
  std::vector<double> sizes;
  auto first = costs.begin();
  for (const std::int64_t count : layers) {
    sizes.push_back(std::accumulate(first, first + count, 0.0));
    first += count;
  }
  return sizes;
}

class CutSearch {
 public:
  CutSearch(PipelineShape shape, const std::vector<double>& costs)
      : shape_(std::move(shape)), costs_(costs) {}

  std::vector<std::int64_t> run() {
    const int micro_batches = shape_.micro_batches;
    shape_.micro_batches = std::min(micro_batches, std::max(16, 4 * shape_.stages));
    const std::vector<std::int64_t> first = like_parts();
    std::vector<std::int64_t> layers = first;
    CutCost best = cost_of(layers);
    if (cuts() <= MOST_CUTS)
      try_all({}, layers, best);
    else
      while (improve(layers, best)) {
      }
    shape_.micro_batches = micro_batches;
    return cost_of(first) < cost_of(layers) ? first : layers;
  }

 private:
  static constexpr double MOST_CUTS = 5000;

  // Cuts where the sum of costs comes nearest to equal parts.
  std::vector<std::int64_t> like_parts() const {
    const auto parts = static_cast<std::size_t>(shape_.parts());
    const double sum = std::accumulate(costs_.begin(), costs_.end(), 0.0);
    std::vector<std::int64_t> layers;
    double before = 0;
    std::size_t first = 0;
    for (std::size_t part = 1; part <= parts; ++part) {
      const double end = sum * static_cast<double>(part) / static_cast<double>(parts);
      const std::size_t last = costs_.size() - (parts - part);  // so that the others get a layer each
      std::size_t next = first + 1;
      before += costs_[first];
      while (next < last && (part == parts || before + costs_[next] / 2 < end)) before += costs_[next++];
      layers.push_back(static_cast<std::int64_t>(next - first));
      first = next;
    }
    return layers;
  }

  // A cut whose step cannot be as short as `longest` is not timed.
  CutCost cost_of(const std::vector<std::int64_t>& layers,
                  double longest = std::numeric_limits<double>::infinity()) {
    shape_.work.part_sizes = sizes_of(layers, costs_);
    const double least = least_makespan(shape_);
    if (least > longest * (1 + CutCost::ROUNDING)) return {.time = least};
    CutCost cost{.time = pipeline_timeline(split_schedule(shape_)).makespan()};
    for (const double size : shape_.work.part_sizes) cost.squares += size * size;
    return cost;
  }

  // Ways to cut the layers: their number less one over the number of cuts.
  double cuts() const {
    double count = 1;
    for (int cut = 1; cut < shape_.parts(); ++cut)
      count *= static_cast<double>(costs_.size() - static_cast<std::size_t>(cut)) / cut;
    return count;
  }

  // Tries all cuts that begin with the parts `begun`.
  void try_all(const std::vector<std::int64_t>& begun, std::vector<std::int64_t>& layers, CutCost& best) {
    const auto left = static_cast<std::int64_t>(costs_.size()) -
                      std::accumulate(begun.begin(), begun.end(), std::int64_t{0});
    const std::int64_t others = shape_.parts() - static_cast<std::int64_t>(begun.size()) - 1;
    std::vector<std::int64_t> tried = begun;
    tried.push_back(0);
    for (std::int64_t count = others == 0 ? left : 1; count <= left - others; ++count) {
      tried.back() = count;
      if (others > 0)
        try_all(tried, layers, best);
      else
        take_if_better(tried, layers, best);
    }
  }

  bool take_if_better(const std::vector<std::int64_t>& tried, std::vector<std::int64_t>& layers,
                      CutCost& best) {
    const CutCost cost = cost_of(tried, best.time);
    if (!(cost < best)) return false;
    best = cost;
    layers = tried;
    return true;
  }

  // Moves the cuts between parts `first` and `last` by one layer: the best of all such moves.
  bool improve(std::vector<std::int64_t>& layers, CutCost& best) {
    const std::vector<std::int64_t> now = layers;
    bool is_better = false;
    for (std::size_t first = 0; first + 1 < now.size(); ++first) {
      for (std::size_t last = first + 1; last < now.size(); ++last) {
        for (const auto& [from, to] : {std::pair(first, last), std::pair(last, first)}) {
          std::vector<std::int64_t> moved = now;
          if (--moved[from] < 1) continue;
          ++moved[to];
          is_better = take_if_better(moved, layers, best) || is_better;
        }
      }
    }
    return is_better;
  }

  PipelineShape shape_;
  const std::vector<double>& costs_;
};

}  // namespace

PipelineBalance balance_pipeline(const PipelineShape& shape, const std::vector<double>& costs) {
  PipelineShape like = shape;
  like.work.part_sizes.clear();
  static_cast<void>(pipeline_schedule(like));  // refuses what cannot be
  if (costs.size() < static_cast<std::size_t>(shape.parts()))
    throw InvalidArgument(str("balance_pipeline: ", costs.size(), " layers for ", shape.parts(),
                              " parts; each part gets at least one"));
  for (std::size_t i = 0; i < costs.size(); ++i)
    if (!std::isfinite(costs[i]) || costs[i] < 0)
      throw InvalidArgument(str("balance_pipeline: the cost of layer ", i, " is ", costs[i],
                                "; costs are finite and not negative"));
  if (!(std::accumulate(costs.begin(), costs.end(), 0.0) > 0))
    throw InvalidArgument("balance_pipeline: all layers cost 0; expected one above 0");
  PipelineBalance balance{.layers = CutSearch(like, costs).run(), .work = like.work};
  balance.work.part_sizes = sizes_of(balance.layers, costs);
  return balance;
}

}  // namespace lockstep

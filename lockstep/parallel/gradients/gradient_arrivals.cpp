#include "lockstep/parallel/gradients/gradient_arrivals.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {

constexpr unsigned ANY_NUMBER = std::numeric_limits<unsigned>::max();

void GradientArrivals::lay_out(std::vector<std::size_t> bucket_of, std::size_t buckets) {
  bucket_of_ = std::move(bucket_of);
  missing_.assign(buckets, 0);
}

void GradientArrivals::watch_graph() {
  graph_ = Graph::WATCHED;
  for (Progress& progress : progress_) progress.expected = ANY_NUMBER;
}

void GradientArrivals::learn_graph() {
  if (graph_ != Graph::WATCHED) throw InternalError("a graph is learnt that was not watched");
  graph_ = Graph::LEARNT;
  for (Progress& progress : progress_) progress.expected = progress.gradients;
}

void GradientArrivals::begin_pass() {
  arrived_ = 0;
  order_.clear();
  for (Progress& progress : progress_) {
    progress.gradients = 0;
    progress.counted = false;
    arrived_ += progress.expected == 0 ? 1 : 0;
  }
  std::fill(missing_.begin(), missing_.end(), 0);
  for (const std::size_t bucket : bucket_of_) ++missing_[bucket];
}

void GradientArrivals::add(std::size_t index) {
  Progress& progress = progress_[index];
  if (index < bucket_of_.size()) order_.push_back(index);
  progress.used = true;
  ++progress.gradients;
  arrived_ += progress.gradients == progress.expected ? 1 : 0;
  if (progress.gradients >= progress.expected) count(index);
}

void GradientArrivals::leave_out(std::size_t index) { count(index); }

void GradientArrivals::count(std::size_t index) {
  if (std::exchange(progress_[index].counted, true) || index >= bucket_of_.size()) return;
  --missing_[bucket_of_[index]];
}

void GradientArrivals::end_step() {
  for (Progress& progress : progress_) progress.used = false;
}

std::vector<bool> GradientArrivals::used() const {
  std::vector<bool> used;
  for (const Progress& progress : progress_) used.push_back(progress.used);
  return used;
}

void GradientArrivals::set_used(const std::vector<bool>& used) {
  for (std::size_t i = 0; i < progress_.size(); ++i) progress_[i].used = i < used.size() && used[i];
}

GradientArrivals::Lateness GradientArrivals::lateness(std::size_t index, bool is_started) const {
  const Progress& progress = progress_[index];
  if (is_short(index) && !(progress.counted && is_started)) return Lateness::NONE;
  if (graph_ == Graph::LEARNT) return Lateness::NOT_IN_GRAPH;
  return progress.gradients > 0 ? Lateness::SECOND_GRADIENT : Lateness::AFTER_IT_WAS_LEFT_OUT;
}

bool GradientArrivals::are_all_complete() const {
  return std::all_of(missing_.begin(), missing_.end(), [](std::size_t missing) { return missing == 0; });
}

}  // namespace lockstep

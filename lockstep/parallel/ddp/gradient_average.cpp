#include "lockstep/parallel/ddp/gradient_average.h"

#include <chrono>
#include <utility>

#include "lockstep/base/str.h"
#include "lockstep/comm/purpose.h"

namespace lockstep {

GradientAverage::GradientAverage(ModelGradients& gradients, const ProcessGroup& group, const BucketCaps& caps,
                                 std::string model)
    : gradients_(gradients),
      group_(group),
      caps_(caps),
      model_(std::move(model)),
      reduction_(gradients.store(), group, model_),
      exchange_(group) {}

void GradientAverage::start_complete() {
  const GradientArrivals& arrivals = gradients_.arrivals();
  const auto is_next_complete = [&] {
    return !reduction_.are_all_started() && arrivals.is_complete(reduction_.started());
  };
  if (!is_next_complete()) return;
  const bool more_to_come = !arrivals.are_all_complete();
  while (is_next_complete()) {
    const auto begin = std::chrono::steady_clock::now();
    reduction_.start_next(mark_);
    clock_.starting(begin, std::chrono::steady_clock::now());
    ++counts_.stats.buckets_started;
    counts_.stats.buckets_overlapped += more_to_come ? 1 : 0;
  }
}

void GradientAverage::start_exchange(bool used, bool order) {
  const Acting acting(Purpose::GRADIENTS, model_, mark_);
  const GradientArrivals& arrivals = gradients_.arrivals();
  if (used) {
    std::vector<bool> flags;
    for (std::size_t i = 0; i < gradients_.size(); ++i) flags.push_back(arrivals.was_used(i));
    exchange_.start_used(flags);
  }
  const BucketStore& store = gradients_.store();
  if (!order || store.buckets() < 2) return;  // on every rank: no bucket could start earlier
  exchange_.start_order(arrival_order(arrivals.order(), store.size()));
}

void GradientAverage::wait() {
  const Acting acting(Purpose::GRADIENTS, model_, mark_);
  for (SparseGradient& gradient : gradients_.sparse()) counts_.sparse_bytes += gradient.reduce(group_);
  reduction_.finish();
  exchange_.wait();
}

void GradientAverage::settle() {
  gradients_.settle(exchange_);
  if (gradients_.arrivals().graph() != GradientArrivals::Graph::LEARNT) exchange_.forget_used();
  ++counts_.stats.reductions;
  counts_.stats.bytes_sent += std::exchange(counts_.sparse_bytes, 0);
  const DistributedDataParallelStats all = stats();
  counts_.stats.last_step_bytes_copied =
      all.bytes_copied - std::exchange(counts_.earlier_copied, all.bytes_copied);
  counts_.stats.last_step_bytes_sent = all.bytes_sent - std::exchange(counts_.earlier_sent, all.bytes_sent);
  follow_order();
}

// Makes the buckets that suit the order of rank 0, the same on every rank.
void GradientAverage::follow_order() {
  const auto order = exchange_.take_order();
  if (!order) return;
  const BucketStore& store = gradients_.store();
  NamedTensors parameters;
  for (std::size_t i = 0; i < store.size(); ++i) parameters.emplace_back("", store.slot(i).parameter());
  BucketPlan plan = bucket_plan(sizes_of(parameters), *order, caps_);
  if (plan == store.plan()) return;
  gradients_.follow(std::move(plan));
  reduction_.follow_store();
  ++counts_.stats.rebuilds;
}

std::string GradientAverage::table() const {
  std::string text = gradients_.store().table();
  for (const SparseGradient& gradient : gradients_.sparse())
    text += str("sparse: ", printable(gradient.name()), "\n");
  return text;
}

DistributedDataParallelStats GradientAverage::stats() const {
  DistributedDataParallelStats all = counts_.stats;
  all.last_step = clock_.last();
  all.buckets = gradients_.store().buckets();
  all.bucket_bytes = gradients_.store().bytes();
  all.bytes_copied = gradients_.store().bytes_copied();
  all.bytes_sent += reduction_.bytes_sent();
  return all;
}

}  // namespace lockstep

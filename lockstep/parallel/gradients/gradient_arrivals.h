// GradientArrivals: which gradients have arrived in this backward, and which buckets are complete. Pure:
// numbers only.
//
//   GradientArrivals arrivals(3);
//   arrivals.lay_out({0, 0, 1}, 2);       // parameters 0 and 1 in bucket 0, parameter 2 in bucket 1
//   arrivals.begin_pass();
//   arrivals.add(2);
//   arrivals.is_complete(1);              // true: nothing in the way of its reduction
//
// A parameter counts once. It counts with the last gradient that it is expected to get in this backward, or
// with leave_out().
//
//   ┌──────────┐  watch_graph()  ┌─────────┐  learn_graph()  ┌────────┐
//   │ ONE_EACH │ ──────────────▶ │ WATCHED │ ──────────────▶ │ LEARNT │
//   └──────────┘                 └─────────┘                 └────────┘
//
// ONE_EACH  each parameter gets one gradient in a backward.
// WATCHED   it gets any number of gradients, so no bucket is complete before every parameter is left out.
// LEARNT    it gets as many as in the backward that was watched: none, one or several.
#pragma once

#include <cstddef>
#include <vector>

namespace lockstep {

class GradientArrivals {
 public:
  enum class Graph { ONE_EACH, WATCHED, LEARNT };
  enum class Lateness { NONE, SECOND_GRADIENT, AFTER_IT_WAS_LEFT_OUT, NOT_IN_GRAPH };

  explicit GradientArrivals(std::size_t parameters) : progress_(parameters) {}

  // Element i of `bucket_of` is the bucket of parameter i. Parameters beyond its end are in no bucket.
  // Between passes.
  void lay_out(std::vector<std::size_t> bucket_of, std::size_t buckets);
  void watch_graph();
  void learn_graph();  // Throws InternalError unless the graph was watched.
  Graph graph() const { return graph_; }

  void begin_pass();
  // Parameter `index` got a gradient.
  void add(std::size_t index);
  // Parameter `index` gets no (more) gradient in this backward. Does nothing a second time.
  void leave_out(std::size_t index);
  void end_step();  // forgets which parameters were used
  // By parameter. Empty if none was used.
  std::vector<bool> used() const;
  void set_used(const std::vector<bool>& used);

  bool is_counted(std::size_t index) const { return progress_[index].counted; }
  bool was_used(std::size_t index) const { return progress_[index].used; }  // since the last end_step()
  bool is_outside_of_graph(std::size_t index) const { return progress_[index].expected == 0; }
  // Returns whether fewer gradients have arrived than the graph has.
  bool is_short(std::size_t index) const { return progress_[index].gradients < progress_[index].expected; }
  unsigned expected(std::size_t index) const { return progress_[index].expected; }
  // Returns why one more gradient of it must not arrive. `is_started`: its bucket has been started.
  Lateness lateness(std::size_t index, bool is_started) const;

  bool is_complete(std::size_t bucket) const { return missing_[bucket] == 0; }
  bool are_all_complete() const;
  // Returns whether all expected gradients have arrived; false as long as the graph is watched.
  bool all_arrived() const { return arrived_ == progress_.size(); }
  // Parameters in buckets, once per gradient, in the order in which the gradients of this backward arrived.
  const std::vector<std::size_t>& order() const { return order_; }

 private:
  struct Progress {
    unsigned expected = 1;   // number of gradients after which it counts
    unsigned gradients = 0;  // number in this backward
    bool used = false;
    bool counted = false;
  };
  void count(std::size_t index);

  Graph graph_ = Graph::ONE_EACH;
  std::vector<Progress> progress_;
  std::vector<std::size_t> bucket_of_;
  std::vector<std::size_t> missing_;  // number of gradients that have not been counted, by bucket
  std::vector<std::size_t> order_;
  std::size_t arrived_ = 0;
};

}  // namespace lockstep

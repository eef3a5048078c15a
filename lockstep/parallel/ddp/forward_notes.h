// ForwardNotes: facts from the forwards since the last backward. They are the parameters on which their
// outputs depend, and the number of forwards that an exception left behind (left_forwards.h).
//
//   ForwardNotes notes(parameters.size());
//   notes.reach(hooks.reachable_from(outputs));    // or reach_all(), where outputs cannot be looked into
//   notes.take_unreached();                        // and the next forward begins anew
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/parallel/replicas/left_forwards.h"

namespace lockstep {

class ForwardNotes {
 public:
  explicit ForwardNotes(std::size_t parameters) : parameters_(parameters) {}

  // Needs no lock.
  LeftForwards& left() { return left_; }

  void reach(const std::vector<bool>& reachable) {
    if (!reached_) reached_.emplace(parameters_, false);
    for (std::size_t i = 0; i < reachable.size(); ++i) (*reached_)[i] = (*reached_)[i] || reachable[i];
  }
  void reach_all() { reached_.emplace(parameters_, true); }
  // Returns whether outputs were searched and depend on no parameter.
  bool is_none_reached() const {
    return reached_ && std::find(reached_->begin(), reached_->end(), true) == reached_->end();
  }
  std::vector<std::size_t> take_unreached() {
    std::vector<std::size_t> unreached;
    const auto reached = std::exchange(reached_, std::nullopt);
    for (std::size_t i = 0; reached && i < parameters_; ++i) {
      if (!(*reached)[i]) unreached.push_back(i);
    }
    return unreached;
  }

 private:
  const std::size_t parameters_;
  LeftForwards left_;
  std::optional<std::vector<bool>> reached_;
};

}  // namespace lockstep

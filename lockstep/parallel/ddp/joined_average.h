// JoinedAverage: connects the averages of one model with a Join (job/join.h). The Join hears of each average
// before it begins, and returns the factor by which the result must be multiplied.
//
//   average.set_announce(announce);
//   average.begin();                        // a backward that averages; announces it
//   gradients.scale(average.take_factor());
//
// A rank without inputs announces nothing; the other ranks tell it the factor.
#pragma once

#include <functional>
#include <utility>

namespace lockstep {

class JoinedAverage {
 public:
  // Called when a backward that will be averaged begins, before it communicates. May return a function. That
  // function is called when the averages have arrived, and returns the factor by which they must be
  // multiplied.
  using Announce = std::function<std::function<double()>()>;

  void set_announce(Announce announce) { announce_ = std::move(announce); }
  void begin() {
    if (announce_ && !stands_in_) factor_ = announce_();
  }
  void stand_in(double factor) {
    stands_in_ = true;
    factor_ = [factor] { return factor; };
  }
  void end_stand_in() { stands_in_ = false; }
  bool stands_in() const { return stands_in_; }
  // For this backward: ranks may have run different numbers of forwards.
  bool is_joined() const { return static_cast<bool>(factor_); }
  double take_factor() { return factor_ ? std::exchange(factor_, {})() : 1.0; }

 private:
  Announce announce_;
  std::function<double()> factor_;  // returns the factor of this backward's averages
  bool stands_in_ = false;
};

}  // namespace lockstep

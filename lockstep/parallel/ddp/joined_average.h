// JoinedAverage: what a Join (job/join.h) makes of the averages of one model: it is told of each before it
// begins, and says by what the result must be multiplied.
//
//   average.set_announce(announce);
//   average.begin();                        // a backward that averages; announces it
//   gradients.scale(average.take_factor());
//
// A rank without inputs stands in: it announces nothing, and knows the factor from the others.
#pragma once

#include <functional>
#include <utility>

namespace lockstep {

class JoinedAverage {
 public:
  // Called when a backward that will be averaged begins, before it communicates. May return a function, which
  // is called when the averages have arrived, and says by what they must be multiplied.
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
  // Of this backward: ranks may have run unequally many forwards.
  bool is_joined() const { return static_cast<bool>(factor_); }
  double take_factor() { return factor_ ? std::exchange(factor_, {})() : 1.0; }

 private:
  Announce announce_;
  std::function<double()> factor_;  // of the averages of this backward
  bool stands_in_ = false;
};

}  // namespace lockstep

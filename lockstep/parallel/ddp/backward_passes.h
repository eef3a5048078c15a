// BackwardPasses: counts the backward passes of one model. It decides which pass averages, and to which pass
// a gradient belongs.
//
//   BackwardPasses passes(/*per_step=*/1);
//   const bool averages = passes.begin();       // a first gradient has come
//   passes.follow(backward);                    // autograd's number of the backward that brought it
//   passes.is_followed(backward);               // true: another gradient of it belongs to the same pass
//   passes.averaged();
//
// Several backwards are one pass if autograd runs one inside another, on one thread (reentrant
// checkpointing).
#pragma once

#include <cstdint>
#include <thread>
#include <utility>

namespace lockstep {

class BackwardPasses {
 public:
  explicit BackwardPasses(int per_step) : per_step_(per_step) {}

  // Says whether a backward that begins now counts as one of the step's. Returns the earlier setting.
  bool set_synchronised(bool on) { return std::exchange(synchronised_, on); }
  bool is_synchronised() const { return synchronised_; }

  // Begins a pass on this thread. Returns whether it is the pass of its step that averages.
  bool begin();
  // Makes the next pass the last one of its step.
  void pass_over_declared() { declared_ = per_step_ - 1; }
  void averaged();
  void turn_ended() {
    declared_ = 0;
  }  // for a virtual rank before the last, because the next one has passes of its own

  std::uint64_t number() const { return number_; }  // number of passes so far
  bool has_averaged() const { return has_averaged_; }
  bool is_on_this_thread() const { return thread_ == std::this_thread::get_id(); }
  void follow(int backward) { followed_ = backward; }
  bool is_followed(int backward) const { return backward == followed_; }

 private:
  const int per_step_;
  bool synchronised_ = true;
  bool has_averaged_ = false;
  int declared_ = 0;  // synchronised passes since the last average
  std::uint64_t number_ = 0;
  std::thread::id thread_;
  int followed_ = -1;
};

}  // namespace lockstep

// Which live wrappers have a parameter, and whose backward it is that brings a shared one its gradient.
//
//   ParameterClaims claims(parameters);              // of one wrapper, until it is destroyed
//   claims.forward_begins();
//   if (claims.begins_pass(3)) claims.set_in_pass(true);     // a gradient has come: shall this wrapper
//                                                            // average it?
//
// A parameter of one wrapper alone tells: any gradient of it begins a pass. Of several wrappers that share a
// parameter (an actor and a critic with one encoder; an old wrapper, and a new one of the same model) those
// take its gradient that have run a forward since their last pass. If there is none, and none is in a pass,
// the one whose forward was last takes it, so that a gradient stays on its rank only where no wrapper ever
// ran a forward.
//
// Cost     of a parameter that is not shared: one load per question.
// Threads  any; wrappers that share parameters take turns, as a parameter's gradient is one tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace lockstep {

class ParameterClaims {
 public:
  explicit ParameterClaims(const std::vector<at::Tensor>& parameters);
  ~ParameterClaims();
  ParameterClaims(const ParameterClaims&) = delete;
  ParameterClaims& operator=(const ParameterClaims&) = delete;

  // Another live wrapper has it, too.
  bool is_shared(std::size_t parameter) const;
  std::optional<std::size_t> first_shared() const;
  void forward_begins();
  void set_in_pass(bool on);
  bool begins_pass(std::size_t parameter) const;

 private:
  struct Claim;
  std::vector<std::shared_ptr<Claim>> claims_;  // by parameter
  // written by this wrapper, read by others
  std::atomic<bool> expects_{false};            // a forward has begun since the last pass
  std::atomic<std::uint64_t> last_forward_{0};  // counted over all wrappers; 0: none
  std::atomic<bool> is_in_pass_{false};
};

}  // namespace lockstep

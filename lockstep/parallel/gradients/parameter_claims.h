// ParameterClaims: the live wrappers of each parameter. They decide which wrapper takes the gradient of a
// shared one.
//
//   ParameterClaims claims(parameters);              // of one wrapper, until it is destroyed
//   claims.forward_begins();
//   if (claims.begins_pass(3)) claims.set_in_pass(true);     // a gradient has come: shall this wrapper
//                                                            // average it?
//
// A parameter of one wrapper is simple: any gradient of it begins a pass. Several wrappers may share a
// parameter (an actor and a critic with one encoder; an old wrapper, and a new one of the same model). Then
// those wrappers take its gradient that have run a forward since their last pass. If there is none, and none
// is in a pass, the wrapper whose forward was last takes it. So a gradient stays on its rank only if no
// wrapper ever ran a forward.
//
// Cost     of a parameter that is not shared: one load per question.
// Threads  any. Wrappers that share parameters take turns, because a parameter's gradient is one tensor.
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

  // Whether another live wrapper has it, too.
  bool is_shared(std::size_t parameter) const;
  std::optional<std::size_t> first_shared() const;
  void forward_begins();
  void set_in_pass(bool on);
  bool begins_pass(std::size_t parameter) const;

 private:
  struct Claim;
  std::vector<std::shared_ptr<Claim>> claims_;  // by parameter
  // written by this wrapper, read by others
  std::atomic<bool> expects_{false};  // a forward has begun since the last pass
  // number of that forward, counted over all wrappers; 0 if there was none
  std::atomic<std::uint64_t> last_forward_{0};
  std::atomic<bool> is_in_pass_{false};
};

}  // namespace lockstep

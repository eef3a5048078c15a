// StageFailed: thrown by Pipeline::step() and eval() on every rank when a stage of another rank threw. The
// rank whose stage threw gets its own exception.
//
//   try {
//     pipeline.step(batch.data, batch.target);
//   } catch (const dist::StageFailed& failed) {  // stage failed.stage() of rank failed.rank()
//     std::cerr << failed.what() << '\n';
//   }
//
// The group stays usable, and so does the pipeline. The gradients of the step are incomplete on all ranks,
// and no rank has stepped its optimiser. So a program may call zero_grad() and go on with another batch.
#pragma once

#include <string>

#include "lockstep/base/error.h"

namespace lockstep {

class StageFailed : public Error {
 public:
  StageFailed(const std::string& message, int rank, int stage)
      : Error(ErrorCode::ABORTED, message), rank_(rank), stage_(stage) {}
  int rank() const { return rank_; }    // within the group
  int stage() const { return stage_; }  // of the model, from 0

 private:
  int rank_;
  int stage_;
};

}  // namespace lockstep

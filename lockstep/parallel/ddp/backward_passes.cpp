#include "lockstep/parallel/ddp/backward_passes.h"

namespace lockstep {

bool BackwardPasses::begin() {
  declared_ += synchronised_ ? 1 : 0;
  ++number_;
  thread_ = std::this_thread::get_id();
  return synchronised_ && declared_ == per_step_;
}

void BackwardPasses::averaged() {
  has_averaged_ = true;
  declared_ = 0;
}

}  // namespace lockstep

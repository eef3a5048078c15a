#include "lockstep/comm/collectives/barrier.h"

#include "lockstep/comm/collectives/check.h"

namespace lockstep::comm {

Work barrier(const ProcessGroup& group, bool async_op) {
  Request request;
  request.verb = Verb::BARRIER;
  return run(group, std::move(request), async_op);
}

}  // namespace lockstep::comm

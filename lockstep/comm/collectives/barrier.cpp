#include "lockstep/comm/collectives/barrier.h"

#include "lockstep/comm/collectives/check.h"

namespace lockstep::comm {

Work barrier(const ProcessGroup& group, bool async_op) {
  if (!takes_part(Verb::BARRIER, group)) return {};
  Request request;
  request.verb = Verb::BARRIER;
  return run(group, std::move(request), async_op);
}

}  // namespace lockstep::comm

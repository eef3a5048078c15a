#include "lockstep/comm/collectives/broadcast.h"

#include "lockstep/comm/collectives/check.h"

namespace lockstep::comm {

Work broadcast(const ProcessGroup& group, void* data, std::size_t count, DType dtype, Peer root,
               bool async_op, std::shared_ptr<void> keep_alive) {
  if (!takes_part(Verb::BROADCAST, group)) return {};
  check_buffer(Verb::BROADCAST, group, data, count, dtype);
  Request request;
  request.verb = Verb::BROADCAST;
  request.dtype = dtype;
  request.root = root.in(group, name_of(Verb::BROADCAST), "root");
  request.count = count;
  request.input = data;
  request.output = data;
  request.keep_alive = std::move(keep_alive);
  return run(group, std::move(request), async_op);
}

}  // namespace lockstep::comm

#include "lockstep/comm/collectives/point_to_point.h"

#include "lockstep/comm/collectives/check.h"

namespace lockstep::comm {
namespace {

Request message(Verb verb, const ProcessGroup& group, int peer, int tag, std::size_t count, DType dtype) {
  check_message(verb, group, peer, tag);
  Request request;
  request.verb = verb;
  request.dtype = dtype;
  request.root = peer;
  request.tag = tag;
  request.count = count;
  return request;
}

}  // namespace

Work isend(const ProcessGroup& group, const void* data, std::size_t count, DType dtype, int destination,
           int tag, std::shared_ptr<void> keep_alive) {
  if (!takes_part(Verb::SEND, group)) return {};
  Request request = message(Verb::SEND, group, destination, tag, count, dtype);
  check_buffer(Verb::SEND, group, data, count, dtype);
  request.input = data;
  request.keep_alive = std::move(keep_alive);
  return run(group, std::move(request), /*async_op=*/true);
}

Work irecv(const ProcessGroup& group, void* data, std::size_t count, DType dtype, int source, int tag,
           std::shared_ptr<void> keep_alive) {
  if (!takes_part(Verb::RECV, group)) return {};
  Request request = message(Verb::RECV, group, source, tag, count, dtype);
  check_buffer(Verb::RECV, group, data, count, dtype);
  request.output = data;
  request.keep_alive = std::move(keep_alive);
  return run(group, std::move(request), /*async_op=*/true);
}

}  // namespace lockstep::comm

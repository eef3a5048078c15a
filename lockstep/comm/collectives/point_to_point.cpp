#include "lockstep/comm/collectives/point_to_point.h"

#include "lockstep/comm/collectives/check.h"

namespace lockstep::comm {
namespace {

Request message(Verb verb, const ProcessGroup& group, int peer, int tag, std::size_t count, DType dtype) {
  if (verb != Verb::RECV || peer != ANY_SOURCE)
    check_rank(verb, group, peer, verb == Verb::SEND ? "destination" : "source");
  if (peer == ANY_SOURCE && group.size() == 1)
    refuse(verb, group, "there is no other rank that a message could come from");
  if (peer == group.rank()) refuse(verb, group, "the peer is this rank itself");
  if (tag < 0) refuse(verb, group, "tag ", tag, " is negative");
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

#include "lockstep/comm/collectives/point_to_point.h"

#include "lockstep/comm/collectives/check.h"
#include "lockstep/comm/collectives/parts.h"

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

Work send_message(const ProcessGroup& group, const Contribution& data, int destination, int tag,
                  std::shared_ptr<void> keep_alive, bool async_op) {
  if (!takes_part(Verb::SEND, group)) return {};
  Request request = message(Verb::SEND, group, destination, tag, data.count, data.dtype);
  check_buffer(Verb::SEND, group, data.data, data.count, data.dtype);
  request.input = data.data;
  request.keep_alive = std::move(keep_alive);
  return run(group, std::move(request), async_op);
}

Work receive_message(const ProcessGroup& group, const Destination& data, int source, int tag,
                     std::shared_ptr<void> keep_alive, bool async_op) {
  if (!takes_part(Verb::RECV, group)) return {};
  Request request = message(Verb::RECV, group, source, tag, data.count, data.dtype);
  check_buffer(Verb::RECV, group, data.data, data.count, data.dtype);
  request.output = data.data;
  request.keep_alive = std::move(keep_alive);
  return run(group, std::move(request), async_op);
}

}  // namespace

Work isend(const ProcessGroup& group, const void* data, std::size_t count, DType dtype, int destination,
           int tag, std::shared_ptr<void> keep_alive) {
  return send_message(group, {data, count, dtype}, destination, tag, std::move(keep_alive),
                      /*async_op=*/true);
}

void send(const ProcessGroup& group, const void* data, std::size_t count, DType dtype, int destination,
          int tag, std::shared_ptr<void> keep_alive) {
  send_message(group, {data, count, dtype}, destination, tag, std::move(keep_alive), /*async_op=*/false);
}

Work irecv(const ProcessGroup& group, void* data, std::size_t count, DType dtype, int source, int tag,
           std::shared_ptr<void> keep_alive) {
  return receive_message(group, {data, count, dtype}, source, tag, std::move(keep_alive), /*async_op=*/true);
}

int recv(const ProcessGroup& group, void* data, std::size_t count, DType dtype, int source, int tag,
         std::shared_ptr<void> keep_alive) {
  return receive_message(group, {data, count, dtype}, source, tag, std::move(keep_alive), /*async_op=*/false)
      .source_rank();
}

}  // namespace lockstep::comm

#include "lockstep/comm/collectives/point_to_point.h"

#include "lockstep/comm/collectives/check.h"
#include "lockstep/comm/collectives/parts.h"

namespace lockstep::comm {
namespace {

Request message(Verb verb, const ProcessGroup& group, Peer peer, int tag, std::size_t count, DType dtype) {
  Request request;
  request.verb = verb;
  request.dtype = dtype;
  request.root = check_message(verb, group, peer, tag);
  request.tag = tag;
  request.count = count;
  return request;
}

Work send_message(const ProcessGroup& group, const Contribution& data, Peer destination, int tag,
                  std::shared_ptr<void> keep_alive, bool async_op) {
  if (!takes_part(Verb::SEND, group)) return {};
  Request request = message(Verb::SEND, group, destination, tag, data.count, data.dtype);
  check_buffer(Verb::SEND, group, data.data, data.count, data.dtype);
  request.input = data.data;
  request.keep_alive = std::move(keep_alive);
  return run(group, std::move(request), async_op);
}

Work receive_message(const ProcessGroup& group, const Destination& data, Peer source, int tag,
                     std::shared_ptr<void> keep_alive, bool async_op) {
  Request request = message(Verb::RECV, group, source, tag, data.count, data.dtype);
  check_buffer(Verb::RECV, group, data.data, data.count, data.dtype);
  request.output = data.data;
  request.keep_alive = std::move(keep_alive);
  return run(group, std::move(request), async_op);
}

// A receive in a group whose ranks have other numbers in the job. It translates the source.
class ReceiveInGroup : public WorkState {
 public:
  ReceiveInGroup(Work work, ProcessGroup group) : work_(std::move(work)), group_(std::move(group)) {}

  void wait(std::optional<std::chrono::nanoseconds> timeout) override {
    timeout ? work_.wait(*timeout) : work_.wait();
  }
  bool poll() override { return work_.is_completed(); }
  std::exception_ptr exception() const override { return work_.exception(); }
  int source_rank() const override {
    const int source = work_.source_rank();
    return source < 0 ? source : group_.ranks()[static_cast<std::size_t>(source)];
  }

 private:
  Work work_;
  const ProcessGroup group_;
};

}  // namespace

Work isend(const ProcessGroup& group, const void* data, std::size_t count, DType dtype, Peer destination,
           int tag, std::shared_ptr<void> keep_alive) {
  return send_message(group, {data, count, dtype}, destination, tag, std::move(keep_alive),
                      /*async_op=*/true);
}

void send(const ProcessGroup& group, const void* data, std::size_t count, DType dtype, Peer destination,
          int tag, std::shared_ptr<void> keep_alive) {
  send_message(group, {data, count, dtype}, destination, tag, std::move(keep_alive), /*async_op=*/false);
}

Work irecv(const ProcessGroup& group, void* data, std::size_t count, DType dtype, Peer source, int tag,
           std::shared_ptr<void> keep_alive) {
  if (!takes_part(Verb::RECV, group)) return {};
  Work work =
      receive_message(group, {data, count, dtype}, source, tag, std::move(keep_alive), /*async_op=*/true);
  if (has_global_ranks(group)) return work;
  return Work(std::make_shared<ReceiveInGroup>(std::move(work), group));
}

int recv(const ProcessGroup& group, void* data, std::size_t count, DType dtype, Peer source, int tag,
         std::shared_ptr<void> keep_alive) {
  if (!takes_part(Verb::RECV, group)) return -1;
  const Work work =
      receive_message(group, {data, count, dtype}, source, tag, std::move(keep_alive), /*async_op=*/false);
  return group.ranks().at(static_cast<std::size_t>(work.source_rank()));
}

}  // namespace lockstep::comm

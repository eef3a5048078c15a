#include "lockstep/comm/collectives/coalesced.h"

#include <cstring>
#include <mutex>
#include <numeric>

#include "lockstep/comm/collectives/all_reduce.h"
#include "lockstep/comm/collectives/check.h"
#include "lockstep/comm/collectives/point_to_point.h"

namespace lockstep::comm {
namespace {

// The all_reduce of one flat buffer. Its result is copied back to the buffers that the parts came from.
class CoalescedWork : public WorkState {
 public:
  CoalescedWork(Work work, std::shared_ptr<void> flat, std::vector<std::span<std::byte>> buffers)
      : work_(std::move(work)), flat_(std::move(flat)), buffers_(std::move(buffers)) {}

  void wait(std::optional<std::chrono::nanoseconds> timeout) override {
    timeout ? work_.wait(*timeout) : work_.wait();
    copy_out();
  }
  bool poll() override {
    if (!work_.is_completed()) return false;
    if (!work_.exception()) copy_out();
    return true;
  }
  std::exception_ptr exception() const override { return work_.exception(); }

 private:
  void copy_out() {
    const std::lock_guard lock(mutex_);
    const auto* from = static_cast<const std::byte*>(flat_.get());
    for (const auto& buffer : buffers_) {
      if (!buffer.empty()) std::memcpy(buffer.data(), from, buffer.size());
      from += buffer.size();
    }
    buffers_.clear();
  }

  Work work_;
  const std::shared_ptr<void> flat_;
  std::mutex mutex_;
  std::vector<std::span<std::byte>> buffers_;  // guarded by mutex_; empty once they hold the result
};

void check_op(const ProcessGroup& group, const P2POp& op) {
  if (!is_message(op.verb)) refuse(op.verb, group, "batch_isend_irecv takes send and recv only");
  check_message(op.verb, group, op.peer, op.tag);
  check_buffer(op.verb, group, op.data, op.count, op.dtype);
}

}  // namespace

Work all_reduce_coalesced(const ProcessGroup& group, std::vector<std::span<std::byte>> buffers, DType dtype,
                          ReduceOp op, bool async_op) {
  if (!takes_part(Verb::ALL_REDUCE, group)) return {};
  std::size_t bytes = 0;
  for (const auto& buffer : buffers) {
    if (buffer.size() % size_of(dtype) != 0)
      refuse(Verb::ALL_REDUCE, group, "a buffer is not a whole number of ", name_of(dtype));
    check_buffer(Verb::ALL_REDUCE, group, buffer.data(), buffer.size() / size_of(dtype), dtype);
    bytes += buffer.size();
  }
  check_reduction(Verb::ALL_REDUCE, group, dtype, op);
  const std::shared_ptr<void> flat = group.allocate_shared(bytes);
  auto* to = static_cast<std::byte*>(flat.get());
  for (const auto& buffer : buffers) {
    if (!buffer.empty()) std::memcpy(to, buffer.data(), buffer.size());
    to += buffer.size();
  }
  Work reduced = all_reduce(group, flat.get(), bytes / size_of(dtype), dtype, op, async_op, flat);
  Work work(std::make_shared<CoalescedWork>(std::move(reduced), flat, std::move(buffers)));
  if (!async_op) work.wait();  // only the copy out is left
  return work;
}

std::vector<Work> batch_isend_irecv(const ProcessGroup& group, const std::vector<P2POp>& ops) {
  std::vector<Work> works;
  if (!group.is_member()) {
    for (const P2POp& op : ops) takes_part(op.verb, group);
    return std::vector<Work>(ops.size());
  }
  for (const P2POp& op : ops) check_op(group, op);
  for (const P2POp& op : ops) {
    works.push_back(op.verb == Verb::SEND ? isend(group, op.data, op.count, op.dtype, op.peer, op.tag)
                                          : irecv(group, op.data, op.count, op.dtype, op.peer, op.tag));
  }
  return works;
}

}  // namespace lockstep::comm

#include "lockstep/parallel/gradients/hooks/counting_backend.h"

#include <utility>

namespace lockstep {
namespace {

std::size_t sent_by(const Request& request, int rank) {
  std::size_t bytes = 0;
  for (const auto& input : request.inputs) bytes += input.size();
  switch (request.verb) {
    case Verb::BROADCAST: return request.root == rank ? request.count * size_of(request.dtype) : 0;
    case Verb::ALL_REDUCE:
    case Verb::REDUCE:
    case Verb::ALL_GATHER:
    case Verb::GATHER:
    case Verb::SEND: return request.count * size_of(request.dtype);
    default: return bytes;
  }
}

class CountingBackend : public Backend {
 public:
  CountingBackend(std::shared_ptr<Backend> inner, std::shared_ptr<std::atomic<std::uint64_t>> sent)
      : inner_(std::move(inner)), sent_(std::move(sent)) {}

  std::string_view name() const override { return inner_->name(); }
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  const std::string& group_name() const override { return inner_->group_name(); }
  std::shared_ptr<WorkState> start(Request request) override {
    *sent_ += sent_by(request, rank());
    return inner_->start(std::move(request));
  }
  std::shared_ptr<void> allocate_shared(std::size_t bytes) override { return inner_->allocate_shared(bytes); }
  std::shared_ptr<Backend> make_groups(const SplitRequest& split) override {
    return inner_->make_groups(split);
  }
  void help() override { inner_->help(); }
  void check_peers() override { inner_->check_peers(); }
  bool serves(DeviceType device) const override { return inner_->serves(device); }
  int device_index() const override { return inner_->device_index(); }
  std::shared_ptr<TraceMemory> trace() const override { return inner_->trace(); }
  void abort(const std::string& reason, ErrorCode code, int peer) override {
    inner_->abort(reason, code, peer);
  }
  void close() override { inner_->close(); }

 private:
  std::shared_ptr<Backend> inner_;
  std::shared_ptr<std::atomic<std::uint64_t>> sent_;
};

}  // namespace

ProcessGroup counting_group(const ProcessGroup& group, std::shared_ptr<std::atomic<std::uint64_t>> sent) {
  return {std::make_shared<CountingBackend>(group.shared_backend(), std::move(sent)), group.ranks()};
}

}  // namespace lockstep

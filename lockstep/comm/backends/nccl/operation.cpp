#include "lockstep/comm/backends/nccl/operation.h"

#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/backends/nccl/core.h"

namespace lockstep::nccl {

Signature::Signature(const Request& request, int size) : parts_(static_cast<std::size_t>(size)) {
  fixed_.call = call_of(request);
  fixed_.is_whole = request.is_whole ? 1 : 0;
  for (std::size_t r = 0; r < request.inputs.size(); ++r) parts_[r] = request.inputs[r].size();
}

Signature::Signature(std::span<const std::byte> bytes)
    : parts_((bytes.size() - sizeof(Fixed)) / sizeof(std::uint64_t)) {
  std::memcpy(&fixed_, bytes.data(), sizeof(fixed_));
  std::memcpy(parts_.data(), bytes.data() + sizeof(fixed_), bytes.size() - sizeof(fixed_));
}

std::vector<std::byte> Signature::pack() const {
  std::vector<std::byte> bytes(sizeof(fixed_) + parts_.size() * sizeof(std::uint64_t));
  std::memcpy(bytes.data(), &fixed_, sizeof(fixed_));
  std::memcpy(bytes.data() + sizeof(fixed_), parts_.data(), bytes.size() - sizeof(fixed_));
  return bytes;
}

std::string Signature::describe() const {
  return str(lockstep::describe(fixed_.call), fixed_.is_whole != 0 ? " in one piece" : "");
}

Operation::Operation(std::shared_ptr<Core> core, Request&& request, std::uint64_t number)
    : core_(std::move(core)), request_(std::move(request)), number_(number), mine_(request_, core_->size()) {}

std::string Operation::describe() const {
  if (!is_message(request_.verb)) return describe_own(request_, number_);
  return describe_message(request_);
}

void Operation::announce(Backend& hosts) {
  words_->told = mine_.pack();
  Request request;
  request.keep_alive = words_;
  request.count = words_->told.size();
  if (request_.verb == Verb::SEND) {
    request.verb = Verb::SEND;
    request.root = request_.root;
    request.input = words_->told.data();
  } else if (request_.verb == Verb::RECV) {
    words_->heard.resize(words_->told.size());
    request.verb = Verb::RECV;
    request.root = request_.root;
    request.output = words_->heard.data();
  } else {
    const auto size = static_cast<std::size_t>(hosts.size());
    words_->heard.resize(words_->told.size() * size);
    request.verb = Verb::ALL_GATHER;
    request.input = words_->told.data();
    request.is_whole = true;
    for (std::size_t r = 0; r < size; ++r)
      request.outputs.push_back(
          std::span(words_->heard).subspan(r * words_->told.size(), words_->told.size()));
  }
  telling_ = hosts.start(std::move(request));
}

void Operation::agree() {
  if (telling_) telling_->wait(std::nullopt);
  if (request_.verb == Verb::SEND) return;  // the receiver may not have called yet
  request_.verb == Verb::RECV ? agree_with_sender() : agree_with_all();
  is_agreed_ = true;
}

void Operation::agree_with_sender() const {
  const Signature theirs(words_->heard);
  if (theirs.call().dtype == request_.dtype && theirs.call().count == request_.count) return;
  throw Mismatch(str("ranks disagree about message ", number_, ": rank ", request_.root, " sent ",
                     name_of(theirs.call().dtype), "[", theirs.call().count, "], rank ", core_->rank(),
                     " received it as ", name_of(request_.dtype), "[", request_.count, "]"));
}

void Operation::agree_with_all() const {
  const std::size_t bytes = words_->told.size();
  for (int r = 0; r < core_->size(); ++r) {
    if (r == core_->rank()) continue;
    const auto place = static_cast<std::size_t>(r) * bytes;
    compare(r, Signature(std::span<const std::byte>(words_->heard).subspan(place, bytes)));
  }
}

// Compares the sizes that belong to a pair of ranks: what one gives, and what the other expects.
void Operation::compare(int rank, const Signature& theirs) const {
  if (!mine_.is_like(theirs)) disagree(rank, theirs);
  const std::size_t element = size_of(request_.dtype);
  const auto r = static_cast<std::size_t>(rank);
  switch (request_.verb) {
    case Verb::ALL_GATHER:
    case Verb::GATHER:
      if (!request_.outputs.empty() && request_.outputs[r].size() != theirs.call().count * element) break;
      return;
    case Verb::REDUCE_SCATTER:
      if (request_.inputs[r].size() != theirs.call().count * element) break;
      return;
    case Verb::SCATTER:
      if (!request_.inputs.empty() && request_.inputs[r].size() != theirs.call().count * element) break;
      return;
    case Verb::ALL_TO_ALL:
      if (request_.outputs[r].size() != theirs.part_for(core_->rank())) break;
      return;
    default: return;
  }
  const std::size_t expected =
      (request_.outputs.empty() ? request_.inputs[r].size() : request_.outputs[r].size()) / element;
  const std::size_t given =
      request_.verb == Verb::ALL_TO_ALL ? theirs.part_for(core_->rank()) / element : theirs.call().count;
  throw Mismatch(str("ranks disagree about collective #", number_, ": rank ", core_->rank(), " called ",
                     mine_.describe(), " and expects ", expected, " elements of rank ", rank, ", which has ",
                     given, "; sizes that belong together must be equal"));
}

void Operation::disagree(int rank, const Signature& theirs) const {
  throw Mismatch(str("ranks disagree about collective #", number_, ": rank ", core_->rank(), " called ",
                     mine_.describe(), ", rank ", rank, " called ", theirs.describe(),
                     "; all ranks must make the same calls in the same order",
                     lockstep::usual_cause(mine_.call(), theirs.call())));
}

void Operation::launched(DeviceStreams::Event end) {
  end_ = std::move(end);
  state_ = State::RUNNING;
}

std::shared_ptr<void> Operation::finish() {
  state_ = State::DONE;
  return std::move(request_.keep_alive);
}

void Operation::fail(std::exception_ptr exception) {
  exception_ = std::move(exception);
  state_ = State::FAILED;
}

void Operation::wait(std::optional<std::chrono::nanoseconds> timeout) {
  core_->refuse_fork("a wait");
  core_->wait(*this, timeout);
}

bool Operation::poll() {
  core_->refuse_fork("a test for completion");
  return core_->poll(*this);
}

std::exception_ptr Operation::exception() const {
  core_->refuse_fork("a look at an operation");
  return core_->exception_of(*this);
}

}  // namespace lockstep::nccl

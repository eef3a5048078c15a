#include "lockstep/comm/backends/shared_messages.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::shared {
namespace {

std::string describe_message(const char* verb, const Request& request, const char* direction) {
  const std::string peer = request.root == ANY_SOURCE ? "any rank" : str("rank ", request.root);
  return str(verb, "(", name_of(request.dtype), "[", request.count, "], ", direction, " ", peer, ", tag ",
             request.tag, ")");
}

struct Waiting {
  std::uint64_t number;
  Letter* letter;
};

// Published and not yet received, in the order sent. Looks at letters in that order and stops at the first unpublished one:
// the sender may publish it, and more behind it, before this rank looks at the next.
std::vector<Waiting> waiting_letters(SharedEngine& engine, int source) {
  std::vector<Waiting> waiting;
  std::uint64_t& oldest = engine.inbox(source).oldest;
  const std::uint64_t first = oldest;
  for (std::uint64_t number = first; number < first + LETTERS; ++number) {
    Letter& letter = engine.control().letter(source, engine.rank(), number);
    if (letter.sequence.load(std::memory_order_acquire) < number + 1) break;
    if (letter.taken.load(std::memory_order_relaxed) < number + 1) {
      waiting.push_back({number, &letter});
    } else if (number == oldest) {
      ++oldest;
    }
  }
  return waiting;
}

void put_aside(SharedEngine& engine, int source, const std::vector<Waiting>& letters) {
  for (const auto& [number, letter] : letters) {
    const std::size_t bytes = letter->count * size_of(letter->dtype);
    const std::byte* data = engine.block(source, letter->offset, bytes);
    engine.inbox(source).aside.push_back(
        {number, letter->tag, letter->dtype, letter->count, {data, data + bytes}});
    letter->taken.store(number + 1, std::memory_order_release);
  }
  engine.control().ring();
}

}  // namespace

SendOperation::SendOperation(std::shared_ptr<SharedEngine> engine, Request request)
    : Operation(std::move(engine), std::move(request)), number_(engine_->sent_to(request_.root)++) {}

std::string SendOperation::describe() const { return describe_message("send", request_, "to"); }

bool SendOperation::published() const {
  const auto& letter = engine_->control().letter(engine_->rank(), request_.root, number_);
  return letter.sequence.load(std::memory_order_relaxed) >= number_ + 1;  // written by this rank only
}

bool SendOperation::try_advance(std::size_t) {
  if (engine_->failed()) return false;
  const Control& control = engine_->control();
  auto& letter = control.letter(engine_->rank(), request_.root, number_);
  if (number_ >= LETTERS && letter.taken.load(std::memory_order_acquire) != number_ + 1 - LETTERS)
    return false;
  if (number_ > 0) {
    const auto& before = control.letter(engine_->rank(), request_.root, number_ - 1);
    if (before.sequence.load(std::memory_order_relaxed) < number_) return false;  // written by this rank only
  }
  const std::size_t bytes = request_.count * size_of(request_.dtype);
  letter.offset = engine_->arena().allocate(bytes);
  if (bytes > 0) std::memcpy(engine_->arena().at(letter.offset), request_.input, bytes);
  letter.count = request_.count;
  letter.tag = request_.tag;
  letter.dtype = request_.dtype;
  letter.sequence.store(number_ + 1, std::memory_order_release);
  engine_->retire_message(request_.root, number_, letter.offset);
  control.ring();
  return true;
}

ReceiveOperation::ReceiveOperation(std::shared_ptr<SharedEngine> engine, Request request)
    : Operation(std::move(engine), std::move(request)),
      ticket_(engine_->receives().called(request_.root, request_.tag)) {}

std::string ReceiveOperation::describe() const { return describe_message("recv", request_, "from"); }

std::vector<int> ReceiveOperation::awaited() const {
  if (request_.root != ANY_SOURCE) return {request_.root};
  std::vector<int> others;
  std::vector<int> present;
  for (int r = 0; r < engine_->size(); ++r) {
    if (r == engine_->rank()) continue;
    others.push_back(r);
    if (!engine_->has_left(r)) present.push_back(r);
  }
  return present.empty() ? others : present;
}

bool ReceiveOperation::try_advance(std::size_t) {
  if (engine_->failed()) return false;
  if (request_.root != ANY_SOURCE) return take_from(request_.root);
  for (int r = 0; r < engine_->size(); ++r) {
    if (r != engine_->rank() && take_from(r)) return true;
  }
  return false;
}

bool ReceiveOperation::take_from(int source) {
  if (!engine_->receives().is_first(ticket_, source, request_.tag)) return false;
  if (!take_from_aside(source) && !take_from_letters(source)) return false;
  if (engine_->failed()) return false;
  engine_->receives().served(ticket_);
  source_ = source;
  return true;
}

bool ReceiveOperation::take_from_aside(int source) {
  auto& aside = engine_->inbox(source).aside;
  const auto message =
      std::find_if(aside.begin(), aside.end(), [&](const auto& m) { return m.tag == request_.tag; });
  if (message == aside.end()) return false;
  if (fits(source, message->number, message->dtype, message->count) && !message->data.empty()) {
    std::memcpy(request_.output, message->data.data(), message->data.size());
  }
  aside.erase(message);
  return true;
}

bool ReceiveOperation::take_from_letters(int source) {
  const auto waiting = waiting_letters(*engine_, source);
  const auto found = std::find_if(waiting.begin(), waiting.end(),
                                  [&](const auto& entry) { return entry.letter->tag == request_.tag; });
  if (found == waiting.end()) {
    if (waiting.size() == LETTERS) put_aside(*engine_, source, waiting);
    return false;
  }
  const auto& [number, letter] = *found;
  if (!fits(source, number, letter->dtype, letter->count)) return true;
  const std::size_t bytes = letter->count * size_of(letter->dtype);
  if (bytes > 0) std::memcpy(request_.output, engine_->block(source, letter->offset, bytes), bytes);
  letter->taken.store(number + 1, std::memory_order_release);
  engine_->control().ring();
  return true;
}

bool ReceiveOperation::fits(int source, std::uint64_t number, DType dtype, std::uint64_t count) {
  if (count == request_.count && dtype == request_.dtype) return true;
  engine_->record_failure(ErrorCode::MISMATCH,
                          str("ranks disagree about message ", number, " from rank ", source, " to rank ",
                              engine_->rank(), ", tag ", request_.tag, ": sent ", name_of(dtype), "[", count,
                              "], received as ", name_of(request_.dtype), "[", request_.count, "]"));
  return false;
}

}  // namespace lockstep::shared

#include "lockstep/comm/backends/shared_messages.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::shared {
namespace {

std::string describe_message(const char* verb, const Request& request, const char* direction) {
  return str(verb, "(", name_of(request.dtype), "[", request.count, "], ", direction, " rank ", request.root,
             ", tag ", request.tag, ")");
}

}  // namespace

SendOperation::SendOperation(std::shared_ptr<SharedEngine> engine, Request request)
    : Operation(std::move(engine), std::move(request)), number_(engine_->sent_to(request_.root)++) {}

std::string SendOperation::describe() const { return describe_message("send", request_, "to"); }

bool SendOperation::published() const {
  return engine_->control().letter(engine_->rank(), request_.root, number_).sequence.load() >= number_ + 1;
}

bool SendOperation::try_advance(std::size_t) {
  if (engine_->failed()) return false;
  const Control& control = engine_->control();
  auto& letter = control.letter(engine_->rank(), request_.root, number_);
  if (number_ >= LETTERS && letter.taken.load(std::memory_order_acquire) != number_ + 1 - LETTERS)
    return false;
  if (number_ > 0 && control.letter(engine_->rank(), request_.root, number_ - 1).sequence.load() < number_)
    return false;
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

std::string ReceiveOperation::describe() const { return describe_message("recv", request_, "from"); }

bool ReceiveOperation::try_advance(std::size_t) {
  if (engine_->failed()) return false;
  // Every letter of the ring is looked at, oldest first; taken ones and other tags are passed over.
  Letter* oldest = nullptr;
  std::uint64_t oldest_number = std::numeric_limits<std::uint64_t>::max();
  for (std::uint64_t n = 0; n < LETTERS; ++n) {
    Letter& letter = engine_->control().letter(request_.root, engine_->rank(), n);
    const std::uint64_t sequence = letter.sequence.load(std::memory_order_acquire);
    if (sequence == 0 || letter.taken.load(std::memory_order_relaxed) == sequence ||
        letter.tag != request_.tag)
      continue;
    if (sequence - 1 < oldest_number) {
      oldest_number = sequence - 1;
      oldest = &letter;
    }
  }
  if (oldest == nullptr) return false;
  take(*oldest, oldest_number);
  return !engine_->failed();
}

void ReceiveOperation::take(Letter& letter, std::uint64_t number) {
  const std::uint64_t count = letter.count;
  const DType dtype = letter.dtype;
  if (count != request_.count || dtype != request_.dtype) {
    engine_->record_failure(
        ErrorCode::MISMATCH,
        str("ranks disagree about message ", number, " from rank ", request_.root, " to rank ",
            engine_->rank(), ", tag ", request_.tag, ": sent ", name_of(dtype), "[", count, "], received as ",
            name_of(request_.dtype), "[", request_.count, "]"));
    return;
  }
  const std::size_t bytes = count * size_of(dtype);
  if (bytes > 0) std::memcpy(request_.output, engine_->block(request_.root, letter.offset, bytes), bytes);
  letter.taken.store(number + 1, std::memory_order_release);
  engine_->control().ring();
  source_ = request_.root;
}

}  // namespace lockstep::shared

#include "lockstep/comm/backends/shared/messages.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <span>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/fail_point.h"
#include "lockstep/base/str.h"

namespace lockstep::shared {
namespace {

// The fastest way for the receiver to get a message: from a block that it reads while the sender fills it,
// out of the sender's own memory, or through a ring. A block is fast while it stays in the caches; a ring
// always does. The kernel looks up every page of private memory, and so copies at half their speed
// (bench/results/EXPERIMENTS.md).
enum class TransferMethod { BLOCK, LENT, RING };
constexpr TransferMethod method_of(std::size_t bytes, bool is_private) {
  // losing its turn costs a waiting sender about as many bytes
  constexpr std::size_t ONE_TURN = std::size_t{64} << 10U;
  constexpr std::size_t CACHED_FROM = std::size_t{1} << 20U;
  constexpr std::size_t CACHED_TO = std::size_t{16} << 20U;
  if (bytes < ONE_TURN) return TransferMethod::BLOCK;
  if (!is_private || bytes < CACHED_FROM) return TransferMethod::LENT;
  return bytes < CACHED_TO ? TransferMethod::BLOCK : TransferMethod::RING;
}
// About the speed of a copy. It bounds how long a sender waits for its receiver: the time of one copy.
constexpr std::size_t BYTES_COPIED_PER_NS = 8;

constexpr std::size_t ring_pieces(std::size_t bytes) { return (bytes + RING_PIECE - 1) / RING_PIECE; }
constexpr std::size_t ring_place(std::size_t piece) { return piece % RING_PIECES * RING_PIECE; }

constexpr std::uint64_t word(Lending lending) { return static_cast<std::uint64_t>(lending); }

struct Waiting {
  std::uint64_t number;
  Letter* letter;
};

// Returns the published letters that are not received yet, in the order sent. Stops at the first unpublished
// letter: the sender may publish it, and later ones, before this rank looks at the next.
std::vector<Waiting> waiting_letters(Context& context, int source) {
  std::vector<Waiting> waiting;
  std::uint64_t& oldest = context.mailbox().inbox(source).oldest;
  const std::uint64_t first = oldest;
  for (std::uint64_t number = first; number < first + LETTERS; ++number) {
    Letter& letter = context.control().letter(source, context.rank(), number);
    if (letter.sequence.load(std::memory_order_acquire) < number + 1) break;
    if (letter.taken.load(std::memory_order_relaxed) < number + 1) {
      waiting.push_back({number, &letter});
    } else if (number == oldest) {
      ++oldest;
    }
  }
  return waiting;
}

std::size_t readable(const Letter& letter, std::uint64_t number) {
  const std::size_t staged = number_for(letter.staged.load(std::memory_order_acquire), number + 1);
  return std::min(staged * STAGED_PIECE, letter.count * size_of(letter.dtype));
}

void put_aside(Context& context, int source, const std::vector<Waiting>& letters) {
  for (const auto& [number, letter] : letters) {
    const std::size_t bytes = letter->count * size_of(letter->dtype);
    // The letter's sender is about to complete it, or another receive of this rank is.
    const bool is_taken =
        letter->lent.load(std::memory_order_relaxed) == pack(number + 1, word(Lending::TAKING));
    if (is_taken || readable(*letter, number) < bytes) break;
    const std::byte* data = context.membership().block(source, letter->offset, bytes);
    context.mailbox().inbox(source).aside.push_back(
        {number, letter->tag, letter->dtype, letter->count, {data, data + bytes}});
    letter->taken.store(number + 1, std::memory_order_release);
  }
  context.control().ring();
}

}  // namespace

SendOperation::SendOperation(Context& context, PendingOperations& pending, Request&& request)
    : Operation(context, pending, std::move(request)),
      number_(context_->mailbox().next_number(request_.root)) {}

std::string SendOperation::describe() const { return describe_message(request_); }

bool SendOperation::published() const {
  const auto& letter = context_->control().letter(context_->rank(), request_.root, number_);
  return letter.sequence.load(std::memory_order_relaxed) >= number_ + 1;  // only this rank writes it
}

bool SendOperation::try_advance(std::size_t) {
  if (context_->failed()) return false;
  auto& letter = context_->control().letter(context_->rank(), request_.root, number_);
  if (!published() && !publish(letter)) return false;
  if (!lent_) return true;
  // Acquires the receiver's last look at the caller's memory.
  if (letter.taken.load(std::memory_order_acquire) == number_ + 1) return true;
  if (letter.from == LentFrom::RING && pour(letter)) return true;
  if (!withdraw(letter)) return false;
  lent_ = false;
  letter.offset = context_->stage().take(bytes());
  copy_in(letter);
  return true;
}

// Returns true when the letter is published. Its data are then lent, or complete.
bool SendOperation::publish(Letter& letter) {
  const Control& control = context_->control();
  if (number_ >= LETTERS && letter.taken.load(std::memory_order_acquire) != number_ + 1 - LETTERS)
    return false;
  if (number_ > 0) {
    const auto& before = control.letter(context_->rank(), request_.root, number_ - 1);
    if (before.sequence.load(std::memory_order_relaxed) < number_) return false;  // only this rank writes it
  }
  letter.count = request_.count;
  letter.tag = request_.tag;
  letter.dtype = request_.dtype;
  lent_ = may_lend();
  const bool is_small = bytes() <= STAGED_PIECE;
  if (lent_) {
    lend(letter);
  } else {
    letter.offset = context_->stage().take(bytes());
    if (is_small) copy_in(letter);
  }
  letter.sequence.store(number_ + 1, std::memory_order_release);
  control.ring();
  if (!lent_ && !is_small) copy_in(letter);
  return true;
}

bool SendOperation::may_lend() const {
  const bool is_private = !context_->arena().contains(request_.input, bytes());
  const TransferMethod method = method_of(bytes(), is_private);
  if (request_.async_op || method == TransferMethod::BLOCK) return false;
  return !is_private || method == TransferMethod::RING || context_->membership().peers->lend_private_memory();
}

void SendOperation::lend(Letter& letter) {
  if (context_->arena().contains(request_.input, bytes())) {
    letter.from = LentFrom::GROUP_MEMORY;
    letter.offset = context_->arena().offset_of(request_.input);
  } else if (method_of(bytes(), true) == TransferMethod::RING) {
    letter.from = LentFrom::RING;
  } else {
    letter.from = LentFrom::PRIVATE_MEMORY;
    letter.offset = reinterpret_cast<std::uintptr_t>(request_.input);
  }
  letter.lent.store(pack(number_ + 1, word(Lending::OFFERED)),
                    std::memory_order_relaxed);  // published by `sequence`
  patience_ = Deadline::in(std::chrono::nanoseconds(bytes() / BYTES_COPIED_PER_NS));
}

// Fills the empty pieces of the ring, once the receiver has come. Returns true when all of the message was
// put in.
bool SendOperation::pour(Letter& letter) {
  if (letter.lent.load(std::memory_order_relaxed) != pack(number_ + 1, word(Lending::TAKING))) return false;
  const std::size_t pieces = ring_pieces(bytes());
  constexpr std::size_t RING = RING_PIECES * RING_PIECE;
  if (poured_ == 0) letter.offset = context_->stage().take(RING);
  // Acquires the receiver's last look at the piece that was there.
  const std::size_t emptied = number_for(letter.emptied.load(std::memory_order_acquire), number_ + 1);
  for (; poured_ < std::min(pieces, emptied + RING_PIECES); ++poured_) {
    const std::size_t begin = poured_ * RING_PIECE;
    std::memcpy(context_->arena().at(letter.offset) + ring_place(poured_),
                static_cast<const std::byte*>(request_.input) + begin, std::min(RING_PIECE, bytes() - begin));
    fail_point("comm.pouring_message");
    // Publishes the piece; the first piece also publishes the place of the ring.
    letter.staged.store(pack(number_ + 1, poured_ + 1), std::memory_order_release);
    context_->control().ring();
  }
  if (poured_ < pieces) return false;
  context_->stage().retire_message(request_.root, number_, letter.offset, RING);
  return true;
}

// Returns whether the message is no longer lent, because the receiver cannot read it or no receiver came.
bool SendOperation::withdraw(Letter& letter) const {
  const std::uint64_t staged = pack(number_ + 1, word(Lending::STAGED));
  // Acquires the receiver's last look at the letter, which is now written anew.
  if (letter.lent.load(std::memory_order_acquire) == staged) return true;
  if (!patience_.expired()) return false;
  std::uint64_t offered = pack(number_ + 1, word(Lending::OFFERED));
  return letter.lent.compare_exchange_strong(offered, staged, std::memory_order_relaxed);
}

void SendOperation::copy_in(Letter& letter) {
  std::byte* block = context_->arena().at(letter.offset);
  for (std::size_t begin = 0; begin < bytes(); begin += STAGED_PIECE) {
    const std::size_t size = std::min(STAGED_PIECE, bytes() - begin);
    std::memcpy(block + begin, static_cast<const std::byte*>(request_.input) + begin, size);
    // Publishes the pieces copied so far.
    letter.staged.store(pack(number_ + 1, begin / STAGED_PIECE + 1), std::memory_order_release);
  }
  context_->stage().retire_message(request_.root, number_, letter.offset, bytes());
  context_->control().ring();
}

ReceiveOperation::ReceiveOperation(Context& context, PendingOperations& pending, Request&& request)
    : Operation(context, pending, std::move(request)),
      place_(context_->mailbox().receives().called(request_.root, request_.tag)) {}

std::string ReceiveOperation::describe() const { return describe_message(request_); }

std::vector<int> ReceiveOperation::awaited() const {
  if (request_.root != ANY_SOURCE) return {request_.root};
  std::vector<int> others;
  std::vector<int> present;
  for (int r = 0; r < context_->size(); ++r) {
    if (r == context_->rank()) continue;
    others.push_back(r);
    if (!has_left(context_->control(), r)) present.push_back(r);
  }
  return present.empty() ? others : present;
}

bool ReceiveOperation::try_advance(std::size_t) {
  if (context_->failed()) return false;
  if (request_.root != ANY_SOURCE) return take_from(request_.root);
  if (source_ >= 0) return take_from(source_);  // the receive has begun
  for (int r = 0; r < context_->size(); ++r) {
    if (r != context_->rank() && take_from(r)) return true;
  }
  return false;
}

bool ReceiveOperation::take_from(int source) {
  if (!context_->mailbox().receives().is_first(place_, source, request_.tag)) return false;
  if (!take_from_aside(source) && !take_from_letters(source)) return false;
  if (context_->failed()) return false;
  context_->mailbox().receives().served(place_);
  source_ = source;
  context_->recorder().set_peer(ticket_, source);
  return true;
}

bool ReceiveOperation::take_from_aside(int source) {
  auto& aside = context_->mailbox().inbox(source).aside;
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
  const auto waiting = waiting_letters(*context_, source);
  const auto found = std::find_if(waiting.begin(), waiting.end(),
                                  [&](const auto& entry) { return entry.letter->tag == request_.tag; });
  if (found == waiting.end()) {
    if (waiting.size() == LETTERS) put_aside(*context_, source, waiting);
    return false;
  }
  const auto& [number, letter] = *found;
  if (!fits(source, number, letter->dtype, letter->count)) return true;
  if (!take(source, number, *letter)) return false;
  letter->taken.store(number + 1, std::memory_order_release);
  context_->control().ring();
  return true;
}

bool ReceiveOperation::take(int source, std::uint64_t number, Letter& letter) {
  const std::uint64_t taking = pack(number + 1, word(Lending::TAKING));
  const auto is_begun = [&] {
    return letter.lent.load(std::memory_order_relaxed) == taking;
  };  // only this rank moves it
  if (is_begun()) return empty_ring(source, number, letter);
  return take_lent(source, number, letter) || (!is_begun() && take_letter(source, number, letter));
}

// Copies the bytes that are staged by now. Returns true when nothing is left.
bool ReceiveOperation::take_letter(int source, std::uint64_t number, Letter& letter) {
  const std::size_t bytes = letter.count * size_of(letter.dtype);
  const std::size_t there = readable(letter, number);
  if (there > copied_) {
    const std::byte* data = context_->membership().block(source, letter.offset, bytes);
    std::memcpy(static_cast<std::byte*>(request_.output) + copied_, data + copied_, there - copied_);
    copied_ = there;
    source_ = source;
  }
  return copied_ >= bytes;
}

// Copies a lent message out of its owner's memory. Returns false in three cases: it is not lent (any more),
// it cannot be read (its sender has ended, or stages it now), or it comes through a ring, piece by piece.
bool ReceiveOperation::take_lent(int source, std::uint64_t number, Letter& letter) {
  std::uint64_t offered = pack(number + 1, word(Lending::OFFERED));
  const std::uint64_t taking = pack(number + 1, word(Lending::TAKING));
  if (!letter.lent.compare_exchange_strong(offered, taking, std::memory_order_relaxed)) return false;
  fail_point("comm.taking_message");
  const std::size_t bytes = letter.count * size_of(letter.dtype);
  const std::span to(static_cast<std::byte*>(request_.output), bytes);
  if (letter.from == LentFrom::RING) {
    source_ = source;
    context_->control().ring();
    return false;
  }
  if (letter.from == LentFrom::GROUP_MEMORY) {
    std::memcpy(to.data(), context_->membership().block(source, letter.offset, bytes), bytes);
    return true;
  }
  if (context_->membership().read_private(source, letter.offset, to)) return true;
  letter.lent.store(pack(number + 1, word(Lending::STAGED)), std::memory_order_release);
  context_->control().ring();
  return false;
}

// Takes all pieces out of the ring that are there. Returns true when they were the rest of the message.
bool ReceiveOperation::empty_ring(int source, std::uint64_t number, Letter& letter) {
  const std::size_t bytes = letter.count * size_of(letter.dtype);
  const std::size_t there = number_for(letter.staged.load(std::memory_order_acquire), number + 1);
  if (there == 0) return false;
  const std::byte* ring = context_->membership().block(source, letter.offset, RING_PIECES * RING_PIECE);
  for (std::size_t piece = ring_pieces(copied_); piece < there && copied_ < bytes; ++piece) {
    const std::size_t size = std::min(RING_PIECE, bytes - copied_);
    std::memcpy(static_cast<std::byte*>(request_.output) + copied_, ring + ring_place(piece), size);
    copied_ += size;
    letter.emptied.store(pack(number + 1, piece + 1), std::memory_order_release);
    context_->control().ring();
  }
  return copied_ >= bytes;
}

bool ReceiveOperation::fits(int source, std::uint64_t number, DType dtype, std::uint64_t count) {
  if (count == request_.count && dtype == request_.dtype) return true;
  const Call sent{.dtype = dtype, .count = count};
  context_->record_failure(
      mismatched(context_->rank(), describe_message_disagreement(number, source, context_->rank(),
                                                                 request_.tag, sent, call_of(request_))));
  return false;
}

}  // namespace lockstep::shared

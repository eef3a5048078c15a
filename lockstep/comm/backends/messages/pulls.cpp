#include "lockstep/comm/backends/messages/pulls.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/base/fail_point.h"

namespace lockstep::messages {
namespace {

constexpr std::size_t PIECE_BYTES = std::size_t{512} << 10U;
// bytes after which the sender is told that the receiver goes on reading
constexpr std::size_t TELL_BYTES = std::size_t{64} << 20U;

}  // namespace

bool Pulls::add(std::uint32_t transfer, std::span<const std::byte> payload,
                const std::shared_ptr<Receive>& receive) {
  Waiting message{transfer, 0, receive};
  if (!memory_ || payload.size() != sizeof(message.address)) return false;
  std::memcpy(&message.address, payload.data(), sizeof(message.address));
  waiting_.push_back(std::move(message));
  return true;
}

Pulls::Piece Pulls::read_piece() {
  const Waiting& message = waiting_.front();
  Receive& receive = *message.receive;
  const auto piece =
      receive.data.subspan(receive.arrived, std::min(PIECE_BYTES, receive.data.size() - receive.arrived));
  fail_point("comm.taking_message");
  if (!memory_->read(message.address + receive.arrived, piece)) {
    receive.arrived = 0;
    Piece none{Outcome::UNREADABLE, message.transfer, 0, message.receive};
    waiting_.pop_front();
    return none;
  }
  receive.arrived += piece.size();
  receive.owner->moved();
  const bool all = receive.arrived == receive.data.size();
  const bool tells = all || receive.arrived % TELL_BYTES == 0;
  Piece read{tells ? Outcome::TOLD : Outcome::PIECE, message.transfer, receive.arrived, nullptr};
  if (all) {
    complete_[message.transfer] = message.receive;
    waiting_.pop_front();
  }
  return read;
}

std::shared_ptr<Receive> Pulls::take_given(std::uint32_t transfer) {
  const auto node = complete_.extract(transfer);
  return node.empty() ? nullptr : node.mapped();
}

void Pulls::forget(const Receive& receive) {
  const auto is_its = [&](const auto& entry) { return entry.second.get() == &receive; };
  std::erase_if(complete_, is_its);
  std::erase_if(waiting_, [&](const Waiting& message) { return message.receive.get() == &receive; });
}

void Pulls::clear() {
  waiting_.clear();
  complete_.clear();
}

}  // namespace lockstep::messages

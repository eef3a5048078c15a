#include "lockstep/comm/backends/messages/connection.h"

#include <utility>

#include "lockstep/base/str.h"

namespace lockstep::messages {
namespace {

// after that many bytes the other connections are served
constexpr std::size_t READ_AT_ONCE = std::size_t{4} << 20U;

void complete(Receive& receive) {
  receive.over = true;
  receive.owner->received(receive);
}

}  // namespace

Connection::Connection(std::unique_ptr<Link> link, int peer, FrameReceiver& receiver,
                       const std::optional<PeerMemory>& memory)
    : link_(std::move(link)),
      peer_(peer),
      receiver_(receiver),
      outgoing_(*link_, /*shows_memory=*/memory.has_value()),
      pulls_(memory) {}

void Connection::accept(const Header& offer, std::span<const std::byte> payload,
                        const std::shared_ptr<Receive>& receive) {
  if (!pulls_.add(offer.transfer, payload, receive)) return ask_for(offer.transfer, receive);
  receiver_.has_to_pull(peer_);
}

void Connection::ask_for(std::uint32_t transfer, const std::shared_ptr<Receive>& receive) {
  accepted_[transfer] = receive;
  outgoing_.answer(Kind::ACCEPT, transfer);
}

bool Connection::pull() {
  if (pulls_.empty()) return false;
  const Pulls::Piece piece = pulls_.read_piece();
  switch (piece.outcome) {
    case Pulls::Outcome::PIECE: break;
    case Pulls::Outcome::TOLD: outgoing_.answer(Kind::TAKEN, piece.transfer, piece.bytes); break;
    case Pulls::Outcome::UNREADABLE: ask_for(piece.transfer, piece.receive); break;
  }
  return !pulls_.empty();
}

// Credit is returned a quarter of a window at a time: few frames, and the sender never runs out of it.
void Connection::consumed(std::size_t bytes) {
  not_credited_ += cost_of(bytes);
  if (not_credited_ < EAGER_WINDOW / 4) return;
  Header credit;
  credit.kind = Kind::CREDIT;
  credit.bytes = std::exchange(not_credited_, 0);
  post(credit);
}

void Connection::cancel(Receive& receive) {
  receive.owner = nullptr;
  std::erase_if(accepted_, [&](const auto& entry) { return entry.second.get() == &receive; });
  pulls_.forget(receive);
}

void Connection::close(StreamEnd end, const std::string& reason) {
  if (closed()) return;
  end_ = end;
  closed_because_ = reason;
  link_->close();
  outgoing_.close();
  accepted_.clear();
  pulls_.clear();
}

void Connection::break_off(const std::string& wrong) {
  close(StreamEnd::BROKEN, "it sent data that is not a Lockstep frame: " + wrong);
}

void Connection::read() {
  receive();
  write();  // sends what receive() has asked for, behind the answers to the frames that came with it
}

void Connection::receive() {
  for (std::size_t total = 0; total < READ_AT_ONCE && !closed();) {
    const StreamResult result = link_->receive_some(incoming_.space());
    if (result.has_ended()) return close(result.end, result.reason);
    if (result.bytes == 0) return;
    total += result.bytes;
    incoming_.filled(result.bytes);
    for (auto found = incoming_.next(); found != Incoming::Found::NOTHING; found = incoming_.next()) {
      if (found == Incoming::Found::HEADER) {
        begin_frame();
      } else {
        finish_frame();
      }
      if (closed()) return;
    }
  }
}

void Connection::begin_frame() {
  const Header& header = incoming_.header();
  if (const std::string wrong = check(header); !wrong.empty()) return break_off(wrong);
  FrameReceiver::Destination to;
  if (header.kind == Kind::MESSAGE) {
    to = receiver_.place_for(peer_, header);
  } else if (header.kind == Kind::CHUNK) {
    const auto found = accepted_.find(header.transfer);
    if (found != accepted_.end()) to.receive = found->second;
  } else {
    to.keep = header.kind == Kind::FAILURE || header.kind == Kind::OFFER;
  }
  const std::size_t room = to.receive ? to.receive->data.size() - to.receive->arrived : 0;
  if (!incoming_.place(std::move(to.receive), to.keep))
    break_off(str(header.payload, " bytes for a buffer of ", room));
}

void Connection::finish_frame() {
  const Header& header = incoming_.header();
  const std::shared_ptr<Receive> receive = incoming_.take_receive();
  if (receive && receive->owner != nullptr && receive->arrived == receive->data.size()) {
    if (header.kind == Kind::CHUNK) accepted_.erase(header.transfer);
    complete(*receive);
  }
  switch (header.kind) {
    case Kind::CHUNK: return;
    case Kind::ACCEPT: return outgoing_.accepted(header);
    case Kind::TAKEN: return outgoing_.taken(header);
    case Kind::GIVEN:
      if (const auto given = pulls_.take_given(header.transfer)) complete(*given);
      return;
    case Kind::CREDIT: return outgoing_.credited(header.bytes);
    case Kind::MESSAGE:
      if (!incoming_.has_kept()) return consumed(header.bytes);
      [[fallthrough]];
    case Kind::OFFER:
    case Kind::CALL:
    case Kind::FAILURE:
    case Kind::GOODBYE: receiver_.arrived(peer_, header, incoming_.take_kept()); return;
  }
}

}  // namespace lockstep::messages

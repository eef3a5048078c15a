#include "lockstep/comm/backends/messages/connection.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/base/fail_point.h"
#include "lockstep/base/str.h"

namespace lockstep::messages {
namespace {

constexpr std::size_t STAGING = std::size_t{64} << 10U;
constexpr std::size_t PULL_BYTES = std::size_t{512} << 10U;  // at once
constexpr std::size_t TELL_BYTES = std::size_t{64} << 20U;   // then the sender hears that it goes on
constexpr std::size_t READ_AT_ONCE = std::size_t{4} << 20U;  // then other connections have their turn

std::span<const std::byte> bytes_of(const Header& header) { return std::as_bytes(std::span(&header, 1)); }

template <typename T> std::span<T> from(std::span<T> whole, std::size_t offset) {
  return whole.subspan(std::min(offset, whole.size()));
}

}  // namespace

Connection::Connection(std::unique_ptr<Link> link, int peer, FrameReceiver& receiver,
                       const std::optional<PeerMemory>& memory)
    : link_(std::move(link)), peer_(peer), receiver_(receiver), memory_(memory), staging_(STAGING) {}

// ---- outgoing
void Connection::Frame::own() {
  owned.assign(payload.begin(), payload.end());
  payload = owned;
  send.reset();
}

void Connection::post(Header header, const std::string& text) {
  if (closed()) return;
  Frame frame{
      header, {}, nullptr, std::as_bytes(std::span(text.data(), std::min(text.size(), LARGEST_TEXT)))};
  frame.header.payload = static_cast<std::uint32_t>(frame.payload.size());
  queue_.push_back(std::move(frame));
  queue_.back().own();
  write();
}

void Connection::post(const std::shared_ptr<Send>& send) {
  Frame frame{send->header, {}, nullptr, {}};
  frame.header.bytes = send->data.size();
  const std::size_t cost = cost_of(send->data.size());
  if (send->data.size() <= EAGER_LIMIT && in_window_ + cost <= EAGER_WINDOW) {
    in_window_ += cost;
    frame.header.kind = Kind::MESSAGE;
    frame.header.payload = static_cast<std::uint32_t>(send->data.size());
    frame.payload = send->data;
    frame.send = send;
  } else {
    frame.header.kind = Kind::OFFER;
    frame.header.transfer = ++last_transfer_;
    offered_[last_transfer_] = send;
    if (memory_) {
      const auto address = reinterpret_cast<std::uintptr_t>(send->data.data());
      frame.owned.resize(sizeof(std::uint64_t));
      std::memcpy(frame.owned.data(), &address, sizeof(address));
      frame.payload = frame.owned;
      frame.header.payload = static_cast<std::uint32_t>(frame.payload.size());
    }
  }
  queue_.push_back(std::move(frame));
  write();
}

void Connection::answer(Kind kind, std::uint32_t transfer, std::uint64_t bytes) {
  Header header;
  header.kind = kind;
  header.transfer = transfer;
  header.bytes = bytes;
  post(header);
}

void Connection::accept(const Header& offer, std::span<const std::byte> payload,
                        const std::shared_ptr<Receive>& receive) {
  Pull pull{offer.transfer, 0, receive};
  if (!memory_ || payload.size() != sizeof(pull.address)) return ask_for(offer.transfer, receive);
  std::memcpy(&pull.address, payload.data(), sizeof(pull.address));
  pulls_.push_back(std::move(pull));
  receiver_.has_to_pull(peer_);
}

void Connection::ask_for(std::uint32_t transfer, const std::shared_ptr<Receive>& receive) {
  accepted_[transfer] = receive;
  answer(Kind::ACCEPT, transfer);
}

// What cannot be read is asked for: the sender has withdrawn it, and will not answer, or the kernel allows it no more.
bool Connection::pull() {
  if (pulls_.empty()) return false;
  const Pull& pull = pulls_.front();
  Receive& receive = *pull.receive;
  const auto piece =
      receive.data.subspan(receive.arrived, std::min(PULL_BYTES, receive.data.size() - receive.arrived));
  fail_point("comm.taking_message");
  if (!memory_->read(pull.address + receive.arrived, piece)) {
    receive.arrived = 0;
    ask_for(pull.transfer, pull.receive);
    pulls_.pop_front();
    return !pulls_.empty();
  }
  receive.arrived += piece.size();
  receive.owner->moved();
  const bool all = receive.arrived == receive.data.size();
  if (!all && receive.arrived % TELL_BYTES != 0) return true;
  answer(Kind::TAKEN, pull.transfer, receive.arrived);
  if (!all) return true;
  pulled_[pull.transfer] = pull.receive;
  pulls_.pop_front();
  return !pulls_.empty();
}

void Connection::taken(const Header& header) {
  const auto offer = offered_.find(header.transfer);
  if (offer == offered_.end()) return;  // cancelled meanwhile: the receiver hears that its group has failed
  const std::shared_ptr<Send> send = offer->second;
  if (header.bytes < send->data.size()) return send->owner->moved();
  offered_.erase(offer);
  fail_point("comm.giving_message");
  answer(Kind::GIVEN, header.transfer);
  send->over = true;
  send->owner->sent(*send);
}

void Connection::given(const Header& header) {
  const auto pulled = pulled_.find(header.transfer);
  if (pulled == pulled_.end()) return;  // cancelled meanwhile
  const std::shared_ptr<Receive> receive = std::move(pulled->second);
  pulled_.erase(pulled);
  receive->over = true;
  receive->owner->received(*receive);
}

void Connection::start_stream(const Header& accepted) {
  const auto offer = offered_.find(accepted.transfer);
  if (offer == offered_.end()) return;  // cancelled meanwhile
  offer->second->header.transfer = accepted.transfer;
  streams_.push_back(offer->second);
  offered_.erase(offer);
}

void Connection::cancel(Send& send) {
  send.owner = nullptr;
  const auto is_it = [&](const auto& other) { return other.get() == &send; };
  if (current_ && is_it(current_->send)) current_->own();  // a frame that was begun is finished
  for (Frame& frame : queue_) {
    if (is_it(frame.send)) frame.own();
  }
  std::erase_if(offered_, [&](const auto& entry) { return is_it(entry.second); });
  std::erase_if(streams_, is_it);
}

bool Connection::next_frame() {
  if (!queue_.empty()) {
    current_ = std::move(queue_.front());
    queue_.pop_front();
    return true;
  }
  if (streams_.empty()) return false;
  const std::shared_ptr<Send> send = streams_.front();
  streams_.pop_front();
  const auto chunk = send->data.subspan(send->taken, std::min(CHUNK_BYTES, send->data.size() - send->taken));
  send->taken += chunk.size();
  if (send->taken < send->data.size()) streams_.push_back(send);
  current_ = Frame{send->header, {}, send, chunk};
  current_->header.kind = Kind::CHUNK;
  current_->header.payload = static_cast<std::uint32_t>(chunk.size());
  return true;
}

void Connection::write() {
  while (!closed() && !broken_ && (current_ || next_frame())) {
    const std::size_t header_written = std::min(current_written_, sizeof(Header));
    const StreamResult result =
        link_->send_some({from(bytes_of(current_->header), header_written),
                          from(current_->payload, current_written_ - header_written)});
    broken_ = result.has_ended();
    if (result.bytes == 0) break;
    current_written_ += result.bytes;
    if (current_->send && current_->send->owner != nullptr) current_->send->owner->moved();
    if (current_written_ == sizeof(Header) + current_->payload.size()) finish_written();
  }
  const bool wanted = !closed() && !broken_ && current_.has_value();
  if (wanted != wants_write_ && !closed()) {
    link_->want_write(wanted);
    wants_write_ = wanted;
  }
}

void Connection::finish_written() {
  const Frame frame = std::move(*current_);
  current_.reset();
  current_written_ = 0;
  if (!frame.send || frame.send->owner == nullptr) return;
  if (frame.header.kind == Kind::CHUNK && frame.send->taken < frame.send->data.size()) return;
  frame.send->over = true;
  frame.send->owner->sent(*frame.send);
}

bool Connection::flushed() const {
  return closed() || broken_ || (!current_ && queue_.empty() && link_->flushed());
}

void Connection::close(StreamEnd end, const std::string& reason) {
  if (closed()) return;
  end_ = end;
  closed_because_ = reason;
  link_->close();
  accepted_.clear();
  pulls_.clear();
  pulled_.clear();
}

std::vector<std::shared_ptr<Send>> Connection::abandoned() {
  std::vector<std::shared_ptr<Send>> sends(streams_.begin(), streams_.end());
  for (const auto& [transfer, send] : offered_) sends.push_back(send);
  for (const Frame& frame : queue_) {
    if (frame.send) sends.push_back(frame.send);
  }
  if (current_ && current_->send && std::find(sends.begin(), sends.end(), current_->send) == sends.end())
    sends.push_back(current_->send);
  streams_.clear();
  offered_.clear();
  queue_.clear();
  current_.reset();
  return sends;
}

// ---- incoming
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
  const auto is_its = [&](const auto& entry) { return entry.second.get() == &receive; };
  std::erase_if(accepted_, is_its);
  std::erase_if(pulled_, is_its);
  std::erase_if(pulls_, [&](const Pull& pull) { return pull.receive.get() == &receive; });
}

void Connection::read() {
  receive();
  write();  // what was asked for, behind the answers to all that came with it
}

void Connection::receive() {
  for (std::size_t total = 0; total < READ_AT_ONCE && !closed();) {
    const bool direct = in_payload_ && staged_begin_ == staged_end_;
    const std::span<std::byte> target = direct ? payload_target() : from(std::span(staging_), staged_end_);
    const StreamResult result = link_->receive_some(target);
    if (result.has_ended()) return close(result.end, result.reason);
    if (result.bytes == 0) return;
    total += result.bytes;
    if (direct) {
      take_payload(result.bytes);
    } else {
      staged_end_ += result.bytes;
    }
    parse();
  }
}

// Where the next bytes of the payload go; what nobody wants goes into the staging memory, which is empty then.
std::span<std::byte> Connection::payload_target() {
  if (receive_ && receive_->owner != nullptr) return receive_->data.subspan(receive_->arrived, payload_left_);
  if (keep_) return std::span(kept_).last(payload_left_);
  return std::span(staging_).first(std::min(payload_left_, staging_.size()));
}

void Connection::take_payload(std::size_t bytes) {
  payload_left_ -= bytes;
  if (!receive_ || receive_->owner == nullptr) return;
  receive_->arrived += bytes;
  receive_->owner->moved();
}

void Connection::take_staged() {
  const std::size_t bytes = std::min(payload_left_, staged_end_ - staged_begin_);
  if (bytes == 0) return;
  if (keep_ || (receive_ && receive_->owner != nullptr))
    std::memcpy(payload_target().data(), &staging_[staged_begin_], bytes);
  staged_begin_ += bytes;
  take_payload(bytes);
}

void Connection::parse() {
  while (!closed()) {
    if (!in_payload_) {
      if (staged_end_ - staged_begin_ < sizeof(Header)) break;
      std::memcpy(&header_, &staging_[staged_begin_], sizeof(Header));
      staged_begin_ += sizeof(Header);
      begin_frame();
      if (closed()) return;
    }
    take_staged();
    if (payload_left_ > 0) break;
    in_payload_ = false;
    finish_frame();
  }
  std::memmove(staging_.data(), staging_.data() + staged_begin_, staged_end_ - staged_begin_);
  staged_end_ -= staged_begin_;
  staged_begin_ = 0;
}

void Connection::begin_frame() {
  if (const std::string wrong = check(header_); !wrong.empty())
    return close(StreamEnd::BROKEN, "what came from it is no frame of Lockstep: " + wrong);
  in_payload_ = true;
  payload_left_ = header_.payload;
  receive_.reset();
  keep_ = header_.kind == Kind::FAILURE || header_.kind == Kind::OFFER;
  if (header_.kind == Kind::MESSAGE) {
    auto destination = receiver_.place_for(peer_, header_);
    receive_ = std::move(destination.receive);
    keep_ = destination.keep;
  } else if (header_.kind == Kind::CHUNK) {
    const auto found = accepted_.find(header_.transfer);
    if (found != accepted_.end()) receive_ = found->second;
  }
  if (receive_ && receive_->data.size() - receive_->arrived < payload_left_)
    return close(StreamEnd::BROKEN,
                 str("what came from it is no frame of Lockstep: ", payload_left_, " bytes for a buffer of ",
                     receive_->data.size() - receive_->arrived));
  kept_.assign(keep_ ? payload_left_ : 0, std::byte{});
}

void Connection::finish_frame() {
  const std::shared_ptr<Receive> receive = std::exchange(receive_, nullptr);
  if (receive && receive->owner != nullptr && receive->arrived == receive->data.size()) {
    if (header_.kind == Kind::CHUNK) accepted_.erase(header_.transfer);
    receive->over = true;
    receive->owner->received(*receive);
  }
  switch (header_.kind) {
    case Kind::CHUNK: return;
    case Kind::ACCEPT: return start_stream(header_);
    case Kind::TAKEN: return taken(header_);
    case Kind::GIVEN: return given(header_);
    case Kind::CREDIT: in_window_ -= std::min<std::size_t>(in_window_, header_.bytes); return;
    case Kind::MESSAGE:
      if (!keep_) return consumed(header_.bytes);
      [[fallthrough]];
    case Kind::OFFER:
    case Kind::CALL:
    case Kind::FAILURE:
    case Kind::GOODBYE: receiver_.arrived(peer_, header_, std::move(kept_)); return;
  }
}

}  // namespace lockstep::messages

#include "lockstep/comm/backends/messages/outgoing.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/base/fail_point.h"

namespace lockstep::messages {
namespace {

std::span<const std::byte> bytes_of(const Header& header) { return std::as_bytes(std::span(&header, 1)); }

std::span<const std::byte> from(std::span<const std::byte> whole, std::size_t offset) {
  return whole.subspan(std::min(offset, whole.size()));
}

}  // namespace

void Outgoing::Frame::own() {
  owned.assign(payload.begin(), payload.end());
  payload = owned;
  send.reset();
}

void Outgoing::post(Header header, const std::string& text) {
  if (state_ == State::CLOSED) return;
  Frame frame{
      header, {}, nullptr, std::as_bytes(std::span(text.data(), std::min(text.size(), LARGEST_TEXT)))};
  frame.header.payload = static_cast<std::uint32_t>(frame.payload.size());
  queue_.push_back(std::move(frame));
  queue_.back().own();
  write();
}

void Outgoing::post(const std::shared_ptr<Send>& send) {
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
    if (shows_memory_) show_memory(frame, *send);
  }
  queue_.push_back(std::move(frame));
  write();
}

void Outgoing::show_memory(Frame& offer, const Send& send) {
  const auto address = reinterpret_cast<std::uintptr_t>(send.data.data());
  offer.owned.resize(sizeof(std::uint64_t));
  std::memcpy(offer.owned.data(), &address, sizeof(address));
  offer.payload = offer.owned;
  offer.header.payload = static_cast<std::uint32_t>(offer.payload.size());
}

void Outgoing::answer(Kind kind, std::uint32_t transfer, std::uint64_t bytes) {
  Header header;
  header.kind = kind;
  header.transfer = transfer;
  header.bytes = bytes;
  post(header);
}

// An offer that is not found was cancelled meanwhile. The receiver hears that its group has failed.
void Outgoing::accepted(const Header& header) {
  const auto offer = offered_.find(header.transfer);
  if (offer == offered_.end()) return;
  offer->second->header.transfer = header.transfer;
  streams_.push_back(offer->second);
  offered_.erase(offer);
}

// TAKEN for a part of the message counts as progress. TAKEN for all of it is confirmed with GIVEN.
void Outgoing::taken(const Header& header) {
  const auto offer = offered_.find(header.transfer);
  if (offer == offered_.end()) return;  // cancelled meanwhile, as above
  const std::shared_ptr<Send> send = offer->second;
  if (header.bytes < send->data.size()) return send->owner->moved();
  offered_.erase(offer);
  fail_point("comm.giving_message");
  answer(Kind::GIVEN, header.transfer);
  send->over = true;
  send->owner->sent(*send);
}

void Outgoing::cancel(Send& send) {
  send.owner = nullptr;
  const auto is_it = [&](const auto& other) { return other.get() == &send; };
  if (current_ && is_it(current_->send)) current_->own();  // a frame that was begun must be finished
  for (Frame& frame : queue_) {
    if (is_it(frame.send)) frame.own();
  }
  std::erase_if(offered_, [&](const auto& entry) { return is_it(entry.second); });
  std::erase_if(streams_, is_it);
}

bool Outgoing::next_frame() {
  if (!queue_.empty()) {
    current_ = std::move(queue_.front());
    queue_.pop_front();
    return true;
  }
  if (streams_.empty()) return false;
  const std::shared_ptr<Send> send = streams_.front();
  streams_.pop_front();
  next_chunk(send);
  return true;
}

void Outgoing::next_chunk(const std::shared_ptr<Send>& send) {
  const auto chunk = send->data.subspan(send->taken, std::min(CHUNK_BYTES, send->data.size() - send->taken));
  send->taken += chunk.size();
  if (send->taken < send->data.size()) streams_.push_back(send);
  current_ = Frame{send->header, {}, send, chunk};
  current_->header.kind = Kind::CHUNK;
  current_->header.payload = static_cast<std::uint32_t>(chunk.size());
}

void Outgoing::write() {
  bool has_ended = false;
  while (can_write() && !has_ended && (current_ || next_frame())) {
    const std::size_t header_written = std::min(current_written_, sizeof(Header));
    const StreamResult result = link_.send_some({from(bytes_of(current_->header), header_written),
                                                 from(current_->payload, current_written_ - header_written)});
    has_ended = result.has_ended();
    if (result.bytes == 0) break;
    current_written_ += result.bytes;
    if (current_->send && current_->send->owner != nullptr) current_->send->owner->moved();
    if (current_written_ == sizeof(Header) + current_->payload.size()) finish_written();
  }
  if (can_write()) note(has_ended);
}

// The link reports room only while a frame waits for it.
void Outgoing::note(bool has_ended) {
  const State next = has_ended ? State::BROKEN : current_ ? State::BLOCKED : State::IDLE;
  if ((next == State::BLOCKED) != (state_ == State::BLOCKED)) link_.want_write(next == State::BLOCKED);
  state_ = next;
}

void Outgoing::finish_written() {
  const Frame frame = std::move(*current_);
  current_.reset();
  current_written_ = 0;
  if (!frame.send || frame.send->owner == nullptr) return;
  if (frame.header.kind == Kind::CHUNK && frame.send->taken < frame.send->data.size()) return;
  frame.send->over = true;
  frame.send->owner->sent(*frame.send);
}

bool Outgoing::flushed() const { return !can_write() || (!current_ && queue_.empty() && link_.flushed()); }

std::vector<std::shared_ptr<Send>> Outgoing::abandoned() {
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

}  // namespace lockstep::messages

// A link (comm/backends/messages/link.h) whose two directions are vectors, and an owner that counts the
// transfers that are over.
//
//   Wire wire;
//   VectorLink link(wire);
//   Outgoing outgoing(link, /*shows_memory=*/false);  outgoing.post(header);
//   EXPECT_THAT(wire.take_kinds(), ElementsAre(Kind::CALL));
#pragma once

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/comm/backends/messages/link.h"
#include "lockstep/comm/backends/messages/transfer.h"

namespace lockstep::harness {

struct Wire {
  std::vector<std::byte> incoming;  // all of it can be read at once
  std::vector<std::byte> outgoing;
  std::size_t room = std::numeric_limits<std::size_t>::max();  // for what goes out
  bool is_broken = false;                                      // writing fails
  bool wants_write = false;

  void deliver(const messages::Header& header) {
    const auto bytes = std::as_bytes(std::span(&header, 1));
    incoming.insert(incoming.end(), bytes.begin(), bytes.end());
  }
  // Of the frames written since the last look.
  std::vector<messages::Kind> take_kinds() {
    std::vector<messages::Kind> kinds;
    for (std::size_t at = 0; at < outgoing.size();) {
      messages::Header header;
      std::memcpy(&header, &outgoing[at], sizeof(messages::Header));
      kinds.push_back(header.kind);
      at += sizeof(messages::Header) + header.payload;
    }
    outgoing.clear();
    return kinds;
  }
};

class VectorLink final : public messages::Link {
 public:
  explicit VectorLink(Wire& wire) : wire_(wire) {}

  StreamResult receive_some(std::span<std::byte> buffer) override {
    StreamResult result;
    result.bytes = std::min(buffer.size(), wire_.incoming.size());
    std::copy_n(wire_.incoming.begin(), result.bytes, buffer.begin());
    wire_.incoming.erase(wire_.incoming.begin(),
                         wire_.incoming.begin() + static_cast<std::ptrdiff_t>(result.bytes));
    return result;
  }
  StreamResult send_some(const std::array<std::span<const std::byte>, 2>& parts) override {
    StreamResult result;
    if (wire_.is_broken) return {0, StreamEnd::BROKEN, "the wire is broken"};
    for (auto part : parts) {
      part = part.first(std::min(part.size(), wire_.room));
      wire_.outgoing.insert(wire_.outgoing.end(), part.begin(), part.end());
      result.bytes += part.size();
      wire_.room -= part.size();
    }
    return result;
  }
  void want_write(bool wanted) override { wire_.wants_write = wanted; }
  bool flushed() const override { return true; }
  void close() override {}

 private:
  Wire& wire_;
};

// Of rank `own` among `size`; nothing ever waits.
class VectorLinks final : public messages::Links {
 public:
  VectorLinks(int own, int size) : own_(own), wires_(static_cast<std::size_t>(size)) {}

  Wire& wire(int peer) { return wires_.at(static_cast<std::size_t>(peer)); }
  std::unique_ptr<messages::Link> link_to(int peer) override {
    if (peer == own_) return nullptr;
    return std::make_unique<VectorLink>(wire(peer));
  }
  std::vector<Event> wait(Deadline, bool) override { return {}; }
  void wake() override {}

 private:
  const int own_;
  std::vector<Wire> wires_;
};

class CountingOwner final : public messages::TransferOwner {
 public:
  virtual ~CountingOwner() = default;
  void moved() override { ++moved_; }
  void sent(messages::Send&) override { ++sent_; }
  void dropped(messages::Send&) override {}
  void received(messages::Receive&) override { ++received_; }

  int moved_ = 0;
  int sent_ = 0;
  int received_ = 0;
};

// Bytes in which no two places look alike.
inline std::vector<std::byte> numbered(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * i >> 7U);
  return bytes;
}

}  // namespace lockstep::harness

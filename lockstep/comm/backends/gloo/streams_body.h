// MeshStreams: the streams of gloo/module.h, over unbound buffers of Gloo. Included by gloo/module.cpp alone, and the only header
// that needs Gloo's.
//
// For each other rank there is one unbound buffer with a ring of packets that go out and a ring of those that come in. A packet is a
// number of bytes and the bytes. All packets of the incoming ring are asked for beforehand; one that has been read is asked for
// again. Gloo sends nothing that was not asked for, so that a rank which does not read stops who writes to it.
//
// What the kernel has need not arrive: a connection closed on one side while the other side writes (it asks for packets again) is
// reset, and what was on its way is lost. So who wants to close asks whether all has been read (HAVE_YOU_READ) and waits for the
// answer (HAVE_READ); for these two there is always room.
//
//   receiver (thread)   connect, then waitRecv again and again: counts what has arrived
//   sender (thread)     waitSend, when few packets are free: counts what has gone
//
// Gloo tells a broken connection to the buffers that wait for something to come, so each waits for something that never comes (WATCH)
// as well. A wait that times out breaks all connections of Gloo's context: none here has a timeout.
#pragma once

#include <gloo/transport/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/comm/backends/gloo/module.h"
#include "lockstep/comm/backends/gloo/pipe_signal.h"
#include "lockstep/comm/backends/gloo/stream_break.h"

namespace lockstep::gloo {

inline constexpr std::size_t PAYLOAD = (std::size_t{256} << 10U) + 64;  // the largest frame and its header
inline constexpr std::size_t PACKET = PAYLOAD + sizeof(std::uint64_t);
inline constexpr std::size_t SLOTS = 10;   // packets on their way to one rank,
inline constexpr std::size_t KEPT = 2;     // of which as many are a question and an answer
inline constexpr std::size_t FEW = 4;      // free ones, when it is time to ask which have gone
inline constexpr std::uint64_t DATA = 0;   // what a packet and its receiver call each other, and
inline constexpr std::uint64_t WATCH = 1;  // what no packet is called
inline constexpr std::uint64_t HAVE_YOU_READ = ~std::uint64_t{0};  // instead of a number of bytes
inline constexpr std::uint64_t HAVE_READ = HAVE_YOU_READ - 1;
inline constexpr std::chrono::hours ENDLESS{24 * 365};

inline void put(const std::string& text, Text& into) {
  const std::size_t length = std::min(text.size(), into.size() - 1);
  std::copy_n(text.data(), length, into.data());
  into.at(length) = '\0';
}

class MeshStreams final : public Streams {
 public:
  MeshStreams(const Place& place, const std::shared_ptr<::gloo::transport::Device>& device)
      : own_(place.rank), context_(device->createContext(place.rank, place.size)) {
    constexpr int GLOO_TIMES = 5;  // its timeout is how long it waits for a connection
    context_->setTimeout(std::max(place.patience / GLOO_TIMES, std::chrono::milliseconds(1)));
    for (int r = 0; r < place.size; ++r) {
      members_.push_back(std::make_unique<Member>(r));
      if (r == own_) continue;
      Member& member = *members_.back();
      member.address = context_->createPair(r)->address().bytes();
      member.memory = std::make_unique_for_overwrite<std::byte[]>(2 * SLOTS * PACKET);
      member.buffer = context_->createUnboundBuffer(member.memory.get(), 2 * SLOTS * PACKET);
    }
  }

  ~MeshStreams() override {
    for (const auto& member : members_) stop_connecting(*member);
    {
      const std::lock_guard lock(mutex_);
      for (const auto& member : members_) end(*member);
    }
    for (const auto& member : members_) {
      if (member->receiver.joinable()) member->receiver.join();
      if (member->sender.joinable()) member->sender.join();
    }
  }

  std::span<const char> address_for(int member) const override { return at(member).address; }

  void connect(int with, std::span<const char> address) override {
    Member& member = at(with);
    member.theirs.assign(address.begin(), address.end());
    member.receiver = std::thread([this, &member] { receive_from(member); });
    member.sender = std::thread([this, &member] { send_to(member); });
  }

  int wait_connected(TimePoint deadline, Text& error) override {
    std::unique_lock lock(mutex_);
    const auto is_broken = [](const auto& member) { return member->ended; };
    const auto is_missing = [&](const auto& member) { return member->rank != own_ && !member->connected; };
    const auto missing = [&] { return std::find_if(members_.begin(), members_.end(), is_missing); };
    const auto broken = [&] { return std::find_if(members_.begin(), members_.end(), is_broken); };
    ready_.wait_until(lock, deadline,
                      [&] { return missing() == members_.end() || broken() != members_.end(); });
    const auto found = broken() != members_.end() ? broken() : missing();
    if (found == members_.end()) return -1;
    put((*found)->broken, error);
    return (*found)->rank;
  }

  Moved send(int to, const std::array<std::span<const std::byte>, 2>& parts) override {
    Member& member = at(to);
    const std::uint64_t bytes = std::min(PAYLOAD, parts[0].size() + parts[1].size());
    {
      const std::lock_guard lock(mutex_);
      if (!member.broken.empty()) return {0, member.broken.c_str(), member.by_peer};
      if (bytes == 0 || member.closing || !has_room(member)) return {};
    }
    std::byte* const payload = &member.memory[outgoing(member.sent)] + sizeof bytes;
    const std::size_t head = std::min<std::size_t>(bytes, parts[0].size());
    if (head > 0) std::memcpy(payload, parts[0].data(), head);
    if (bytes > head) std::memcpy(payload + head, parts[1].data(), bytes - head);
    if (const char* const broken = send_packet(member, bytes, bytes)) return {0, broken, member.by_peer};
    ++member.written;
    return {bytes, nullptr, false};
  }

  Moved receive(int from, std::span<std::byte> buffer) override {
    Member& member = at(from);
    {
      const std::lock_guard lock(mutex_);
      if (member.arrived == member.taken && !member.ended) return {};
      if (member.arrived == member.taken) return {0, member.broken.c_str(), member.by_peer};
    }
    const std::size_t offset = incoming(member.taken);
    std::uint64_t length = 0;
    std::memcpy(&length, &member.memory[offset], sizeof length);
    if (length == HAVE_YOU_READ || length == HAVE_READ) {
      take(member, offset);
      if (length == HAVE_READ) member.known = std::exchange(member.asked, 0);
      return {0, length == HAVE_READ ? nullptr : send_packet(member, HAVE_READ, 0)};
    }
    if (length > PAYLOAD || member.read > length)
      return {0, break_off(member, {"what came is no packet", false}), false};
    const std::size_t bytes = std::min<std::size_t>(buffer.size(), length - member.read);
    std::memcpy(buffer.data(), &member.memory[offset + sizeof length + member.read], bytes);
    member.read += bytes;
    if (member.read == length) take(member, offset);
    return {bytes, nullptr, false};
  }

  bool flushed(int to) override {
    Member& member = at(to);
    {
      const std::lock_guard lock(mutex_);
      if (member.written == member.known || member.closing || !member.broken.empty()) return true;
    }
    if (member.asked > 0) return false;
    member.asked = member.written;
    return send_packet(member, HAVE_YOU_READ, 0) != nullptr;
  }

  void want_write(int to, bool wanted) override {
    {
      const std::lock_guard lock(mutex_);
      at(to).wants_write = wanted;
    }
    if (wanted) ready_.notify_all();
  }

  void close(int with) override {
    Member& member = at(with);
    stop_connecting(member);
    const std::lock_guard lock(mutex_);
    end(member);
  }

  std::size_t wait(std::span<Ready> ready, TimePoint deadline) override {
    std::unique_lock lock(mutex_);
    std::size_t count = 0;
    const auto is_over = [&] { return woken_ || (count = collect(ready)) > 0; };
    if (deadline == TimePoint::max()) {
      ready_.wait(lock, is_over);
    } else {
      ready_.wait_until(lock, deadline, is_over);
    }
    woken_ = false;
    return count;
  }

  void wake() override {
    {
      const std::lock_guard lock(mutex_);
      woken_ = true;
    }
    ready_.notify_all();
  }

 private:
  struct Member {
    explicit Member(int number) : rank(number) {}

    const int rank;
    std::vector<char> address;
    std::vector<char> theirs;
    std::unique_ptr<std::byte[]> memory;  // packets out, packets in
    std::unique_ptr<::gloo::transport::UnboundBuffer> buffer;
    std::thread receiver;
    std::thread sender;
    std::condition_variable changed;
    std::size_t read = 0;       // of the packet that is being read
    std::uint64_t written = 0;  // packets with bytes,
    std::uint64_t known = 0;    // those that have been read, as the other side said,
    std::uint64_t asked = 0;    // and those after which it is being asked; 0: it is not
    // guarded by mutex_
    bool connected = false;
    bool closing = false;
    bool wants_write = false;
    bool drains = false;     // the sender is to see packets go
    std::string broken;      // nothing can be sent,
    bool by_peer = false;    // because the other process ended, and
    bool ended = false;      // nothing more will arrive
    std::uint64_t sent = 0;  // packets given to Gloo,
    std::uint64_t gone = 0;  // and those of them that it needs no more
    std::uint64_t arrived = 0;
    std::uint64_t taken = 0;
  };

  static std::size_t outgoing(std::uint64_t packet) { return packet % SLOTS * PACKET; }
  static std::size_t incoming(std::uint64_t packet) { return (SLOTS + packet % SLOTS) * PACKET; }

  Member& at(int member) { return *members_.at(static_cast<std::size_t>(member)); }
  const Member& at(int member) const { return *members_.at(static_cast<std::size_t>(member)); }

  // ---- with the lock
  static bool has_room(const Member& member) { return member.sent - member.gone < SLOTS - KEPT; }

  std::size_t collect(std::span<Ready> ready) const {
    std::size_t count = 0;
    for (const auto& member : members_) {
      if (member->closing || count == ready.size()) continue;
      const bool readable = member->arrived > member->taken || member->ended;
      const bool writable = member->wants_write && has_room(*member);
      if (readable || writable) ready[count++] = {member->rank, readable, writable};
    }
    return count;
  }

  // Its threads come to an end; an abort that finds nobody waiting is kept for the next wait.
  static void end(Member& member) {
    if (std::exchange(member.closing, true) || !member.buffer) return;
    member.buffer->abortWaitRecv();
    member.buffer->abortWaitSend();
    member.changed.notify_all();
  }

  // ---- without it
  const char* break_off(Member& member, const Break& found) {
    const std::lock_guard lock(mutex_);
    if (member.broken.empty()) {
      member.broken = found.reason;
      member.by_peer = found.by_peer;
    }
    member.changed.notify_all();
    return member.broken.c_str();
  }

  // Null, or why it failed.
  template <class Call> const char* call_gloo(Member& member, const Call& call) {
    try {
      const HeldPipeSignal held;
      call();
      return nullptr;
    } catch (const std::exception& error) {
      return break_off(member, break_of(error));
    }
  }

  // The packet whose payload is in its place. Null, or why not.
  const char* send_packet(Member& member, std::uint64_t length, std::size_t payload) {
    const std::size_t offset = outgoing(member.sent);
    std::memcpy(&member.memory[offset], &length, sizeof length);
    const char* const broken =
        call_gloo(member, [&] { member.buffer->send(member.rank, DATA, offset, sizeof length + payload); });
    if (broken != nullptr) return broken;
    const std::lock_guard lock(mutex_);
    ++member.sent;
    if (member.sent - member.gone >= SLOTS - FEW && !std::exchange(member.drains, true))
      member.changed.notify_all();
    return nullptr;
  }

  // The packet at this place has been read and may be used again.
  void take(Member& member, std::size_t offset) {
    member.read = 0;
    {
      const std::lock_guard lock(mutex_);
      ++member.taken;
      if (!member.broken.empty() || member.closing) return;
    }
    call_gloo(member, [&] { member.buffer->recv(member.rank, DATA, offset, PACKET); });
  }

  // The pair may be waiting for the other side. Nobody else deletes it while the member is not closing.
  void stop_connecting(Member& member) {
    {
      const std::lock_guard lock(mutex_);
      if (member.connected || member.closing || member.rank == own_) return;
    }
    const auto& pair = context_->getPair(member.rank);
    if (pair) pair->close();
  }

  void receive_from(Member& member) {
    hold_pipe_signal_for_ever();
    try {
      context_->getPair(member.rank)->connect(member.theirs);
      member.buffer->recv(member.rank, WATCH, 0, 0);
      for (std::uint64_t packet = 0; packet < SLOTS; ++packet)
        member.buffer->recv(member.rank, DATA, incoming(packet), PACKET);
      {
        const std::lock_guard lock(mutex_);
        member.connected = true;
      }
      ready_.notify_all();
      count_arrivals(member);
    } catch (const std::exception& error) {
      break_off(member, break_of(error));
    }
    {
      std::unique_lock lock(mutex_);
      member.ended = true;
      ready_.notify_all();
      member.changed.wait(lock, [&] { return member.closing; });
    }
    context_->getPair(member.rank).reset();
  }

  // Until the member closes; throws when its connection is broken. Who waits hears of that first of all, even of packets that came
  // before: those can still be had without waiting.
  void count_arrivals(Member& member) {
    for (bool is_broken = false;;) {
      try {
        if (!member.buffer->waitRecv(nullptr, ENDLESS)) return;
      } catch (const std::exception&) {
        if (std::exchange(is_broken, true)) throw;
        continue;
      }
      bool first = false;
      {
        const std::lock_guard lock(mutex_);
        if (member.closing) return;
        first = member.arrived++ == member.taken;
      }
      if (first) ready_.notify_all();
    }
  }

  void send_to(Member& member) {
    hold_pipe_signal_for_ever();
    std::unique_lock lock(mutex_);
    const auto is_over = [&] { return member.closing || !member.broken.empty(); };
    const auto has_work = [&] { return member.drains && member.gone < member.sent; };
    while (true) {
      member.changed.wait(lock, [&] { return is_over() || has_work(); });
      if (is_over()) return;
      lock.unlock();
      const bool has_gone = wait_for_one(member);
      lock.lock();
      if (!has_gone) continue;
      ++member.gone;
      if (member.gone == member.sent) member.drains = false;
      if (member.wants_write) ready_.notify_all();
    }
  }

  bool wait_for_one(Member& member) {
    try {
      return member.buffer->waitSend(nullptr, ENDLESS);
    } catch (const std::exception& error) {
      break_off(member, break_of(error));
      return false;
    }
  }

  const int own_;
  // Before the members, whose buffers are to go first.
  const std::shared_ptr<::gloo::transport::Context> context_;
  std::vector<std::unique_ptr<Member>> members_;
  std::mutex mutex_;
  std::condition_variable ready_;  // for those who wait for any member
  bool woken_ = false;             // guarded by mutex_
};

}  // namespace lockstep::gloo

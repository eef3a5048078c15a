// TaggedStreams: the streams of mpi/module.h, over MPI_Isend and MPI_Irecv. Included by mpi/module.cpp alone, and the only
// header that needs mpi.h.
//
// Every byte is copied once on each side, into and out of packets that belong to this file: MPI cannot be told to leave a buffer
// alone, and an operation that fails must do so at once, because its caller may free the buffer.
#pragma once
// NOLINTBEGIN: the two MPIs define the same names as pointers, as numbers and as macros of casts

#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <list>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/backends/mpi/module.h"

namespace lockstep::mpi {

// The largest message: a frame with a whole small message and its header.
inline constexpr std::size_t PACKET = (std::size_t{64} << 10U) + 64;
inline constexpr std::size_t SLOTS = 8;   // packets on their way to one rank
inline constexpr std::size_t CLOSED = 8;  // groups that are over and may still get a farewell

inline std::mutex& calls() {  // around every call of MPI
  static auto* const instance = new std::mutex;
  return *instance;
}

// Guarded by calls():
inline bool over = false;       // MPI is being finalised: nothing is sent or received any more,
inline bool finalized = false;  // and nothing of MPI may be called

inline std::string error_text(const char* call, int code) {
  std::array<char, MPI_MAX_ERROR_STRING + 1> text = {};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  return std::string(call) + ": " + text.data();
}

struct Packet {
  std::vector<std::byte> bytes;
  MPI_Request request = MPI_REQUEST_NULL;
};

// What nobody waits for any more and MPI still holds: it keeps its memory until it is over.
inline std::list<Packet>& left_over() {
  static auto* const instance = new std::list<Packet>;
  return *instance;
}

inline void keep(Packet&& packet) {
  if (packet.request != MPI_REQUEST_NULL) left_over().push_back(std::move(packet));
}

inline void sweep() {
  left_over().remove_if([](Packet& packet) {
    int done = 0;
    MPI_Test(&packet.request, &done, MPI_STATUS_IGNORE);
    return done != 0;
  });
}

// Streams that are over: news of a rank that left later may still come, and MPI complains about it at the end.
struct Closed {
  MPI_Comm comm = MPI_COMM_NULL;
  int tag = 0;
};
inline std::list<Closed>& closed_streams() {
  static auto* const instance = new std::list<Closed>;
  return *instance;
}

inline void drain(const Closed& closed) {
  while (true) {
    int there = 0;
    MPI_Status status = {};
    if (MPI_Iprobe(MPI_ANY_SOURCE, closed.tag, closed.comm, &there, &status) != MPI_SUCCESS || there == 0)
      return;
    Packet packet;
    packet.bytes.resize(PACKET);
    MPI_Irecv(packet.bytes.data(), static_cast<int>(PACKET), MPI_BYTE, status.MPI_SOURCE, closed.tag,
              closed.comm, &packet.request);
    keep(std::move(packet));
  }
}

// ---- one rank's stream: two receives are posted in order, the first is the next to be read
struct Member {
  int rank = 0;
  bool open = false;
  bool wants_write = false;
  std::string broken;
  std::array<Packet, SLOTS> outgoing;
  std::array<Packet, 2> incoming;
  std::size_t first = 0;
  std::size_t arrived = 0;  // bytes of the first, if it is complete,
  std::size_t taken = 0;    // and of them those that were read
  bool complete = false;
};

class TaggedStreams;
inline std::list<TaggedStreams*>& open_streams() {
  static auto* const instance = new std::list<TaggedStreams*>;
  return *instance;
}

class TaggedStreams final : public Streams {
 public:
  TaggedStreams(MPI_Comm comm, int tag, const std::vector<int>& ranks, int own) : comm_(comm), tag_(tag) {
    const std::lock_guard lock(calls());
    open_streams().push_back(this);
    std::for_each(closed_streams().begin(), closed_streams().end(), drain);
    members_.resize(ranks.size());
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      Member& member = members_[i];
      member.rank = ranks[i];
      member.open = member.rank != own && !over;
      if (!member.open) continue;
      for (Packet& packet : member.incoming) {
        packet.bytes.resize(PACKET);
        post(member, packet);
      }
    }
  }

  ~TaggedStreams() override {
    const std::lock_guard lock(calls());
    if (!finalized) let_go();
    open_streams().remove(this);
    if (closed_streams().size() > CLOSED) closed_streams().pop_front();
  }

  Moved send(int to, const std::array<std::span<const std::byte>, 2>& parts) override {
    const std::lock_guard lock(calls());
    Member& member = at(to);
    if (over) return {};
    if (!member.broken.empty()) return {0, member.broken};
    Packet* const packet = free_slot(member);
    const std::size_t bytes = std::min(PACKET, parts[0].size() + parts[1].size());
    if (packet == nullptr || bytes == 0) return {};
    packet->bytes.resize(std::max(packet->bytes.size(), bytes));
    const std::size_t head = std::min(bytes, parts[0].size());
    if (head > 0) std::memcpy(packet->bytes.data(), parts[0].data(), head);
    if (bytes > head) std::memcpy(packet->bytes.data() + head, parts[1].data(), bytes - head);
    note(member, "MPI_Isend",
         MPI_Isend(packet->bytes.data(), static_cast<int>(bytes), MPI_BYTE, member.rank, tag_, comm_,
                   &packet->request));
    return {bytes, ""};
  }

  Moved receive(int from, std::span<std::byte> buffer) override {
    const std::lock_guard lock(calls());
    Member& member = at(from);
    if (over) return {};
    if (!look(member)) return {0, member.broken};
    Packet& packet = member.incoming.at(member.first);
    const std::size_t bytes = std::min(buffer.size(), member.arrived - member.taken);
    std::memcpy(buffer.data(), packet.bytes.data() + member.taken, bytes);
    member.taken += bytes;
    if (member.taken == member.arrived) {
      member.complete = false;
      member.first = 1 - member.first;
      post(member, packet);
    }
    return {bytes, ""};
  }

  bool flushed(int to) override {
    const std::lock_guard lock(calls());
    Member& member = at(to);
    return over || !member.open || std::all_of(member.outgoing.begin(), member.outgoing.end(), is_free);
  }

  void want_write(int to, bool wanted) override {
    const std::lock_guard lock(calls());
    at(to).wants_write = wanted;
  }

  void close(int with) override {
    const std::lock_guard lock(calls());
    if (finalized) return;
    close(at(with));
    sweep();
  }

  // Closes all, with the lock held.
  void let_go() {
    for (Member& member : members_) close(member);
    closed_streams().push_back({comm_, tag_});
    sweep();
  }

  std::vector<Ready> progress() override {
    const std::lock_guard lock(calls());
    std::vector<Ready> ready;
    if (over) return ready;
    for (std::size_t i = 0; i < members_.size(); ++i) {
      Member& member = members_[i];
      if (!member.open) continue;
      const bool readable = look(member) || !member.broken.empty();
      const bool writable = member.wants_write && free_slot(member) != nullptr;
      if (readable || writable) ready.push_back({static_cast<int>(i), readable, writable});
    }
    if (!left_over().empty()) sweep();
    return ready;
  }

 private:
  Member& at(int member) { return members_.at(static_cast<std::size_t>(member)); }

  static void close(Member& member) {
    if (!std::exchange(member.open, false)) return;
    for (Packet& packet : member.incoming) {
      if (packet.request != MPI_REQUEST_NULL) MPI_Cancel(&packet.request);
      keep(std::move(packet));
    }
    for (Packet& packet : member.outgoing) {
      if (!is_free(packet)) keep(std::move(packet));
    }
  }

  static void note(Member& member, const char* call, int code) {
    if (code != MPI_SUCCESS && member.broken.empty()) member.broken = error_text(call, code);
  }

  void post(Member& member, Packet& packet) const {
    note(member, "MPI_Irecv",
         MPI_Irecv(packet.bytes.data(), static_cast<int>(PACKET), MPI_BYTE, member.rank, tag_, comm_,
                   &packet.request));
  }

  static bool is_free(Packet& packet) {
    int done = 1;
    if (packet.request != MPI_REQUEST_NULL) MPI_Test(&packet.request, &done, MPI_STATUS_IGNORE);
    return done != 0;
  }

  static Packet* free_slot(Member& member) {
    const auto slot = std::find_if(member.outgoing.begin(), member.outgoing.end(), is_free);
    return slot == member.outgoing.end() ? nullptr : &*slot;
  }

  // Whether there is something to read.
  static bool look(Member& member) {
    if (member.complete || !member.open || !member.broken.empty()) return member.complete;
    int done = 0;
    MPI_Status status = {};
    const int code = MPI_Test(&member.incoming.at(member.first).request, &done, &status);
    note(member, "MPI_Irecv", code);
    if (done == 0 || code != MPI_SUCCESS) return false;
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    member.arrived = static_cast<std::size_t>(bytes);
    member.taken = 0;
    member.complete = true;
    return true;
  }

  const MPI_Comm comm_;
  const int tag_;
  std::vector<Member> members_;
};

}  // namespace lockstep::mpi
// NOLINTEND

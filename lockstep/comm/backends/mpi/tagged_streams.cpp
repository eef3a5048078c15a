// NOLINTBEGIN: the two MPIs define the same names as pointers, as numbers and as macros of casts
#include "lockstep/comm/backends/mpi/tagged_streams.h"

#include <algorithm>
#include <cstring>
#include <list>
#include <mutex>
#include <utility>

#include "lockstep/comm/backends/mpi/calls.h"

namespace lockstep::mpi {
namespace {

constexpr std::size_t CLOSED = 8;  // number of closed streams that may still receive a goodbye

// Closed streams. A goodbye of a rank that left later may still arrive, and MPI complains at the end about
// messages that were not received.
struct Closed {
  MPI_Comm comm = MPI_COMM_NULL;
  int tag = 0;
};
std::list<Closed>& closed_streams() {
  static auto* const instance = new std::list<Closed>;  // outlives static destructors
  return *instance;
}

std::list<TaggedStreams*>& open_streams() {
  static auto* const instance = new std::list<TaggedStreams*>;  // outlives static destructors
  return *instance;
}

void drain(const Closed& closed) {
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

}  // namespace

TaggedStreams::TaggedStreams(MPI_Comm comm, int tag, const std::vector<int>& ranks, int own)
    : comm_(comm), tag_(tag) {
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

TaggedStreams::~TaggedStreams() {
  const std::lock_guard lock(calls());
  if (!finalized) let_go();
  open_streams().remove(this);
  if (closed_streams().size() > CLOSED) closed_streams().pop_front();
}

TaggedStreams::Moved TaggedStreams::send(int to, const std::array<std::span<const std::byte>, 2>& parts) {
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

TaggedStreams::Moved TaggedStreams::receive(int from, std::span<std::byte> buffer) {
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

bool TaggedStreams::flushed(int to) {
  const std::lock_guard lock(calls());
  Member& member = at(to);
  return over || !member.open || std::all_of(member.outgoing.begin(), member.outgoing.end(), is_free);
}

void TaggedStreams::want_write(int to, bool wanted) {
  const std::lock_guard lock(calls());
  at(to).wants_write = wanted;
}

void TaggedStreams::close(int with) {
  const std::lock_guard lock(calls());
  if (finalized) return;
  close(at(with));
  sweep();
}

// Closes all streams, with the lock held.
void TaggedStreams::let_go() {
  for (Member& member : members_) close(member);
  closed_streams().push_back({comm_, tag_});
  sweep();
}

std::vector<TaggedStreams::Ready> TaggedStreams::progress() {
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
  if (are_packets_left()) sweep();
  return ready;
}

void TaggedStreams::close(Member& member) {
  if (!std::exchange(member.open, false)) return;
  for (Packet& packet : member.incoming) {
    if (packet.request != MPI_REQUEST_NULL) MPI_Cancel(&packet.request);
    keep(std::move(packet));
  }
  for (Packet& packet : member.outgoing) {
    if (!is_free(packet)) keep(std::move(packet));
  }
}

void TaggedStreams::note(Member& member, const char* call, int code) {
  if (code != MPI_SUCCESS && member.broken.empty()) member.broken = error_text(call, code);
}

void TaggedStreams::post(Member& member, Packet& packet) const {
  note(member, "MPI_Irecv",
       MPI_Irecv(packet.bytes.data(), static_cast<int>(PACKET), MPI_BYTE, member.rank, tag_, comm_,
                 &packet.request));
}

Packet* TaggedStreams::free_slot(Member& member) {
  const auto slot = std::find_if(member.outgoing.begin(), member.outgoing.end(), is_free);
  return slot == member.outgoing.end() ? nullptr : &*slot;
}

// Returns whether there is something to read.
bool TaggedStreams::look(Member& member) {
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

void TaggedStreams::close_all() {
  for (TaggedStreams* const streams : open_streams()) streams->let_go();
}

bool TaggedStreams::are_settled() {
  std::for_each(closed_streams().begin(), closed_streams().end(), drain);
  sweep();
  return !are_packets_left();
}

}  // namespace lockstep::mpi
// NOLINTEND

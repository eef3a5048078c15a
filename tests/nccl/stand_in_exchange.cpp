// See stand_in_exchange.h.
#include "tests/nccl/stand_in_exchange.h"

#include <string>

namespace lockstep::nccl::stand_in {
namespace {

std::string text(const Tag& tag) {
  return (tag.verb == Verb::SEND ? "a message" : name_of(tag.verb)) + " of " + std::to_string(tag.count) +
         " of type " + std::to_string(tag.type) + ", operator " + std::to_string(tag.op) + ", root " +
         std::to_string(tag.root);
}

}  // namespace

void Exchange::send(Communicator& comm, int peer, const char* data, std::size_t bytes, const Tag& tag) {
  lanes_[{&comm, peer, Way::TO}].push_back({data, nullptr, bytes, tag});
}

void Exchange::receive(Communicator& comm, int peer, char* data, std::size_t bytes, const Tag& tag) {
  lanes_[{&comm, peer, Way::FROM}].push_back({nullptr, data, bytes, tag});
}

void Exchange::run() {
  for (Pause pause; !lanes_.empty();) {
    bool moved = false;
    for (auto lane = lanes_.begin(); lane != lanes_.end();) {
      moved = advance(lane->first, lane->second) || moved;
      lane = lane->second.empty() ? lanes_.erase(lane) : std::next(lane);
    }
    if (moved) {
      pause.reset();
    } else if (!lanes_.empty()) {
      pause();
    }
  }
}

// Whether anything happened.
bool Exchange::advance(const Lane& lane, std::deque<Transfer>& transfers) const {
  auto& [comm, peer, way] = lane;
  const Communicator::Touch touch(*comm);
  if (!touch) {
    transfers.clear();
    return true;
  }
  Channel& channel = way == Way::TO ? comm->channel_to(peer) : comm->channel_from(peer);
  Transfer& transfer = transfers.front();
  const bool moved =
      way == Way::TO ? advance_send(channel, transfer) : advance_receive(*comm, peer, transfer);
  if (!has_ended(channel, way, transfer)) return moved;
  transfers.pop_front();
  return true;
}

bool Exchange::has_ended(Channel& channel, Way way, const Transfer& transfer) const {
  return transfer.tag_done == sizeof(Tag) && transfer.done == transfer.bytes && !transfer.is_stuck &&
         (way == Way::FROM || is_network_ || channel.is_empty());
}

bool Exchange::advance_send(Channel& channel, Transfer& transfer) {
  const char* const tag = reinterpret_cast<const char*>(&transfer.tag);
  const std::size_t of_tag = channel.write(tag + transfer.tag_done, sizeof(Tag) - transfer.tag_done);
  transfer.tag_done += of_tag;
  if (transfer.tag_done < sizeof(Tag)) return of_tag != 0;
  const std::size_t of_data = channel.write(transfer.from + transfer.done, transfer.bytes - transfer.done);
  transfer.done += of_data;
  return of_tag + of_data != 0;
}

bool Exchange::advance_receive(Communicator& comm, int peer, Transfer& transfer) {
  if (transfer.is_stuck) return false;
  Channel& channel = comm.channel_from(peer);
  if (channel.is_dropped()) {
    transfer.is_stuck = true;
    comm.set_state(REMOTE_ERROR, "stand-in: rank " + std::to_string(peer) +
                                     " has closed its connection to rank " + std::to_string(comm.rank()) +
                                     ", which was to get " + text(transfer.tag));
    return false;
  }
  char* const arriving = reinterpret_cast<char*>(&transfer.arriving);
  const std::size_t of_tag = channel.read(arriving + transfer.tag_done, sizeof(Tag) - transfer.tag_done);
  transfer.tag_done += of_tag;
  if (transfer.tag_done < sizeof(Tag)) return of_tag != 0;
  if (of_tag != 0 && transfer.arriving != transfer.tag) {
    transfer.is_stuck = true;
    comm.note("stand-in: rank " + std::to_string(peer) + " is in " + text(transfer.arriving) + "; rank " +
              std::to_string(comm.rank()) + " is in " + text(transfer.tag) + ": this never ends");
    return false;
  }
  const std::size_t of_data = channel.read(transfer.to + transfer.done, transfer.bytes - transfer.done);
  transfer.done += of_data;
  return of_tag + of_data != 0;
}

}  // namespace lockstep::nccl::stand_in

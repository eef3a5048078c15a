#include "lockstep/comm/store_meeting.h"

#include <charconv>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/number_list.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/missing_rank.h"

namespace lockstep {
namespace {

// Rank 0 waits for the others until the deadline and then says who is missing: the others listen a little longer.
constexpr std::chrono::seconds UNTIL_RANK_0_SAYS_WHY{5};

// What rank 0 publishes: "A" and all texts as "SIZE:TEXT", or "T" or "L", a rank, ":" and why it gave up.
constexpr char ALL = 'A';
constexpr char LATE = 'T';
constexpr char LOST = 'L';

// Reads "NUMBER:" off the front.
int take_number_and_colon(std::string_view& text) {
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end == text.data() + text.size() || *end != ':' || number < 0) {
    throw StoreError(
        "init_process_group: the store holds something else than what ranks that meet write into it");
  }
  text.remove_prefix(static_cast<std::size_t>(end - text.data()) + 1);
  return number;
}

std::vector<Message> unpack(std::string_view packet, int size) {
  std::vector<Message> all;
  packet.remove_prefix(1);
  for (int r = 0; r < size; ++r) {
    const auto bytes = static_cast<std::size_t>(take_number_and_colon(packet));
    if (bytes > packet.size())
      throw StoreError("init_process_group: what the ranks wrote into the store is cut off");
    all.push_back({std::string(packet.substr(0, bytes)), {}});
    packet.remove_prefix(bytes);
  }
  return all;
}

}  // namespace

std::string meeting_farewell(int rank) { return str("lockstep/gone/", rank); }

std::string StoreMeeting::key(const char* what, int rank) const {
  return str("lockstep/meet/", options_.name, '/', round_, '/', what, '/', rank);
}

std::vector<Message> StoreMeeting::exchange(const std::string& text, const std::vector<int>& fds,
                                            Deadline deadline) {
  if (!fds.empty()) throw InternalError("a meeting over a store cannot pass descriptors");
  ++round_;
  std::string packet;
  if (rank() == 0) {
    packet = collect(text, deadline);
  } else {
    options_.store->set(key("text", rank()), text);
    packet = receive(deadline);
  }
  if (packet[0] != ALL) give_up(packet);
  std::vector<Message> all = unpack(packet, size());
  if (rank() == 0) {
    remove_round();
  } else {
    options_.store->set(key("read", rank()), "");
  }
  return all;
}

std::string StoreMeeting::collect(const std::string& own, Deadline deadline) {
  std::string packet = str(ALL, own.size(), ':', own);
  std::vector<int> missing;
  for (int r = 1; r < size(); ++r) {
    const auto entry = options_.store->first_of({key("text", r), meeting_farewell(r)}, deadline);
    if (!entry) {
      missing.push_back(r);
    } else if (entry->index == 1) {
      packet = str(LOST, r, ":init_process_group, group of ", size(), ": rank ", r,
                   " ended before all ranks had met");
      break;
    } else {
      packet += str(entry->value.size(), ':', entry->value);
    }
  }
  if (packet[0] == ALL && !missing.empty()) {
    packet = str(LATE, missing.front(), ":init_process_group, group of ", size(), ": rank(s) ",
                 number_list(missing), " did not come before the timeout; were all ", size(),
                 " processes started?");
  }
  options_.store->set(key("all", 0), packet);
  return packet;
}

std::string StoreMeeting::receive(Deadline deadline) {
  const Deadline longer =
      deadline.is_never() ? deadline : Deadline::in(deadline.remaining() + UNTIL_RANK_0_SAYS_WHY);
  auto entry = options_.store->first_of({key("all", 0), meeting_farewell(0)}, longer);
  if (!entry) {
    throw MissingRank(
        str("init_process_group, rank ", rank(), " of ", size(), ": rank 0 did not come before the timeout"),
        0);
  }
  if (entry->index == 1) {
    throw PeerLost(
        str("init_process_group, rank ", rank(), " of ", size(), ": rank 0 ended before all ranks had met"),
        0);
  }
  return std::move(entry->value);
}

void StoreMeeting::give_up(const std::string& failure) {
  std::string_view why = std::string_view(failure).substr(1);
  const int peer = take_number_and_colon(why);
  if (failure[0] == LOST) throw PeerLost(std::string(why), peer);
  throw MissingRank(std::string(why), peer);
}

// Everybody else has read, or is gone, or is late; in all cases this round is over.
void StoreMeeting::remove_round() {
  constexpr std::chrono::seconds PATIENCE{30};
  const Deadline deadline = Deadline::in(PATIENCE);
  for (int r = 1; r < size(); ++r) {
    options_.store->first_of({key("read", r), meeting_farewell(r)}, deadline);
    options_.store->delete_key(key("read", r));
    options_.store->delete_key(key("text", r));
  }
  options_.store->delete_key(key("all", 0));
}

}  // namespace lockstep

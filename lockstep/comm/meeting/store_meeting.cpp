#include "lockstep/comm/meeting/store_meeting.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/number_list.h"
#include "lockstep/base/str.h"
#include "lockstep/base/text_hash.h"
#include "lockstep/base/wait_reminder.h"
#include "lockstep/comm/meeting/missing_rank.h"
#include "lockstep/os/machine.h"
#include "lockstep/os/process.h"

namespace lockstep {
namespace {

// Rank 0 waits for the other ranks until the deadline, then names the missing ranks. The other ranks wait a
// little longer to receive that.
constexpr std::chrono::seconds UNTIL_RANK_0_SAYS_WHY{5};
constexpr std::size_t MOST_NAMED = 64;
// After this time rank 0 checks for further missing ranks, besides the rank that it waits for.
constexpr std::chrono::seconds BETWEEN_LOOKS{2};

// A rank's text begins with the id of its attempt, random, of so many bytes.
constexpr std::size_t ID = 16;

// The value that rank 0 publishes: "A" and all texts as "SIZE:TEXT"; or "T" (late) or "L" (lost), a rank, ":"
// and the reason.
constexpr char ALL = 'A';
constexpr char LATE = 'T';
constexpr char LOST = 'L';

// Takes "NUMBER:" off the front.
int take_number_and_colon(std::string_view& text) {
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end == text.data() + text.size() || *end != ':' || number < 0) {
    throw StoreError("a meeting over a store: the store holds a value that no rank of the meeting wrote");
  }
  text.remove_prefix(static_cast<std::size_t>(end - text.data()) + 1);
  return number;
}

std::vector<Message> unpack(std::string_view packet, int size) {
  std::vector<Message> all;
  packet.remove_prefix(1);
  for (int r = 0; r < size; ++r) {
    const auto bytes = static_cast<std::size_t>(take_number_and_colon(packet));
    if (bytes > packet.size()) throw StoreError("a meeting over a store: a value in the store is incomplete");
    all.push_back({std::string(packet.substr(0, bytes)), {}});
    packet.remove_prefix(bytes);
  }
  return all;
}

}  // namespace

// The job is part of the key. So if two jobs meet in one store, neither takes the end of the other's rank for
// the end of its own.
std::string meeting_farewell(int rank, const JobFingerprint& job) {
  return str("lockstep/gone/", std::hex, text_hash(pack(job)), std::dec, '/', rank);
}

StoreMeeting::StoreMeeting(StoreMeetingOptions options)
    : options_(std::move(options)),
      self_(str("process ", current_pid(), " of ", host_name(), " (", random_hex(4), ")")),
      id_(random_hex(ID / 2)) {
  set_caller(options_.caller);
}

std::string StoreMeeting::came(int rank) const {
  return str("lockstep/meet/", options_.name, "/came/", rank);
}

std::string StoreMeeting::key(const char* what, int rank) const {
  return str("lockstep/meet/", options_.name, '/', round_, '/', what, '/', rank);
}

std::string StoreMeeting::told(const std::string& id) const {
  return str("lockstep/meet/", options_.name, "/told/", id);
}

std::vector<Message> StoreMeeting::exchange(const std::string& text, const std::vector<int>& fds,
                                            Deadline deadline) {
  if (!fds.empty()) throw InternalError("a meeting over a store cannot pass descriptors");
  if (++round_ == 1) come();
  std::string packet;
  try {
    if (rank() == 0) {
      packet = collect(text, deadline);
    } else {
      options_.store->set(key("text", rank()), id_ + text);
      packet = receive(deadline);
    }
    if (packet[0] != ALL) give_up(packet);
  } catch (const Error&) {
    leave();
    throw;
  }
  std::vector<Message> all = unpack(packet, size());
  if (rank() == 0) {
    remove_round();
  } else {
    options_.store->set(key("read", rank()), "");
  }
  return all;
}

// Checks that no other process is this rank, and that the job is the one that the store serves.
void StoreMeeting::come() {
  const auto first_to_write = [&](const std::string& where, const std::string& text) {
    return options_.store->compare_set(where, "", text);
  };
  const std::string where = place() + ": ";
  if (options_.is_of_one_job) {
    const std::string mine = pack(options_.job);
    const std::string served = first_to_write(str("lockstep/meet/", options_.name, "/job"), mine);
    if (const JobFingerprint other = unpack_fingerprint(served); !is_same_job(options_.job, other))
      throw Mismatch(str(where, "ranks of two jobs have met at one store: this rank belongs to ",
                         describe(options_.job), ", a rank that came before it to ", describe(other), "; ",
                         TELL_JOBS_APART));
  }
  const std::string holder = first_to_write(came(rank()), self_);
  if (holder != self_)
    throw Mismatch(str(where, "another process has come as rank ", rank(), " before: ", printable(holder),
                       ", this is ", self_, "; ", TELL_JOBS_APART));
}

// A failed meeting must leave nothing in the user's store that would disturb the next meeting.
void StoreMeeting::leave() noexcept {
  if (options_.is_of_one_job) return;
  try {
    for (const auto& left : {key("text", rank()), told(id_), came(rank())}) options_.store->delete_key(left);
  } catch (const Error&) {  // the store cannot be reached, which is why the meeting failed
  }
}

// Returns the ranks from `first` on that have not set a text.
std::vector<int> StoreMeeting::missing_from(int first) const {
  std::vector<int> missing;
  for (int r = first; r < size() && missing.size() < MOST_NAMED; ++r) {
    if (!options_.store->find(key("text", r))) missing.push_back(r);
  }
  return missing;
}

// Returns a rank's text, or its farewell. Meanwhile updates the missing ranks in the warning.
std::optional<StoreEntry> StoreMeeting::hear(int rank, Deadline deadline) const {
  std::vector<int> missing = {rank};
  const Awaited awaited([&] { return str("rank(s) ", number_list(missing)); });
  while (true) {
    const auto look = std::min<std::chrono::nanoseconds>(deadline.remaining(), BETWEEN_LOOKS);
    auto entry = options_.store->first_of({key("text", rank), farewell(rank)}, Deadline::in(look));
    if (entry || deadline.expired()) return entry;
    missing = missing_from(rank);
    if (missing.empty()) missing = {rank};
  }
}

std::string StoreMeeting::collect(const std::string& own, Deadline deadline) {
  std::string packet = str(ALL, own.size(), ':', own);
  std::vector<int> missing;
  std::vector<std::pair<int, std::string>> heard;  // ranks and ids
  for (int r = 1; r < size(); ++r) {
    const auto entry = hear(r, deadline);
    if (!entry) {
      missing.push_back(r);
    } else if (entry->index == 1) {
      packet =
          str(LOST, r, ":", caller(), ", group of ", size(), ": rank ", r, " ended before all ranks had met");
      break;
    } else {
      const std::size_t bytes = entry->value.size() - std::min(ID, entry->value.size());
      packet += str(bytes, ':', std::string_view(entry->value).substr(entry->value.size() - bytes));
      heard.emplace_back(r, entry->value.substr(0, ID));
    }
  }
  if (packet[0] == ALL && !missing.empty()) {
    packet =
        str(LATE, missing.front(), ":", caller(), ", group of ", size(), ": rank(s) ", number_list(missing),
            " did not come before the timeout; were all ", size(), " processes started?");
  }
  publish(packet, heard);
  return packet;
}

// A failure stays for late ranks if no other meeting can follow in the store. Otherwise each rank that has
// come is told by itself: its next attempt would take a common value for its own, and rank 0's would take
// the text. A text that came after rank 0's last look stays for that.
void StoreMeeting::publish(const std::string& packet,
                           const std::vector<std::pair<int, std::string>>& heard) const {
  if (packet[0] == ALL || options_.is_of_one_job) return options_.store->set(key("all", 0), packet);
  for (const auto& [rank, id] : heard) {
    options_.store->delete_key(key("text", rank));
    options_.store->set(told(id), packet);
  }
}

std::string StoreMeeting::receive(Deadline deadline) {
  const Deadline longer =
      deadline.is_never() ? deadline : Deadline::in(deadline.remaining() + UNTIL_RANK_0_SAYS_WHY);
  const Awaited awaited([] { return "rank 0, or for the ranks that it waits for"; });
  // Rank 0 may have ended since it spoke: what it said comes first.
  auto entry = options_.store->first_of({key("all", 0), told(id_), farewell(0)}, longer);
  if (!entry) {
    throw MissingRank(str(place(), ": rank 0 did not come before the timeout"), 0);
  }
  if (entry->index == 2) {
    throw PeerLost(str(place(), ": rank 0 ended before all ranks had met"), 0);
  }
  return std::move(entry->value);
}

void StoreMeeting::give_up(const std::string& failure) {
  std::string_view why = std::string_view(failure).substr(1);
  const int peer = take_number_and_colon(why);
  if (failure[0] == LOST) throw PeerLost(std::string(why), peer);
  throw MissingRank(std::string(why), peer);
}

// Every other rank has read the value, is gone, or is late. In all three cases the round is over.
void StoreMeeting::remove_round() {
  constexpr std::chrono::seconds PATIENCE{30};
  const Deadline deadline = Deadline::in(PATIENCE);
  for (int r = 1; r < size(); ++r) {
    options_.store->first_of({key("read", r), farewell(r)}, deadline);
    options_.store->delete_key(key("read", r));
    options_.store->delete_key(key("text", r));
  }
  options_.store->delete_key(key("all", 0));
  for (int r = 0; round_ == 1 && !options_.is_of_one_job && r < size(); ++r)
    options_.store->delete_key(came(r));
}

}  // namespace lockstep

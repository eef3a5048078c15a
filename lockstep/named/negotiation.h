// Negotiation: what to do, given what the ranks have announced. A pure machine: every rank feeds it the same
// announcements in the same order, so every rank gets the same responses in the same order. Nothing here
// communicates, waits or knows which rank it is on.
//
//   Negotiation table(/*ranks=*/2, /*cache_capacity=*/1024);
//   table.announce(0, request, now);
//   table.take_ready();                                  // {}: rank 1 has not announced that name
//   table.announce(1, request, now);
//   table.take_ready();                                  // {RUN allreduce "grad.conv1"}
//
// One name:
//
//   a rank announces it ──> PENDING ──(every member has announced or joined)──> do they agree?
//                                            yes │                                  │ no
//                 the group is not complete: HELD ──(its last name)──> RUN      MISMATCH (its whole group)
//
// Cache       a name that ran gets a slot. The next time a rank may announce the slot instead of the request,
//             if its request is the one that it gave before. When the cache is full, the slot that was used
//             least recently goes. Slots are the same on every rank.
// Join        a rank that has joined counts as having announced everything, with zeros. Only sums and
//             averages of ALLREDUCE can take zeros. Other operations become a MISMATCH that names the joined
//             ranks. ALL_JOINED comes when every rank has joined; then none has.
// Source      horovod/common/controller.cc and response_cache.cc describe the same duties for a coordinator.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "lockstep/named/request.h"
#include "lockstep/named/response_cache.h"

namespace lockstep::named {

using Time = std::chrono::steady_clock::time_point;
inline Time now() { return std::chrono::steady_clock::now(); }

struct Response {
  enum class Result : std::uint8_t { RUN, MISMATCH, ALL_JOINED };
  Result result = Result::RUN;
  std::shared_ptr<const Agreement> agreement;
  std::string text = {};                           // MISMATCH: what differs, and between which ranks
  int last_joined = -1;                            // ALL_JOINED
  Time since = {};                                 // the first announcement
  std::optional<std::size_t> slot = std::nullopt;  // of the cache, if every rank announced it

  const Request& request() const { return agreement->any(); }
};
// "RUN allreduce "a" of set 0", one line each.
std::string to_text(const std::vector<Response>& responses);

// A name that some ranks have announced and others have not.
struct Incomplete {
  std::shared_ptr<const Request> request;
  std::vector<int> present, missing;  // ranks of the job
  Time since;                         // the first announcement
};

class Negotiation {
 public:
  Negotiation(int ranks, std::size_t cache_capacity);

  // The global process set has all ranks and is there from the beginning.
  void add_process_set(int id, std::vector<int> ranks);
  void remove_process_set(int id);
  bool has_process_set(int id) const { return sets_.contains(id); }

  void announce(int rank, std::shared_ptr<const Request> request, Time now);
  void announce_cached(int rank, std::size_t slot, Time now);
  // By every rank of the job, at one time: the same as announce_cached() of each.
  void announce_cached_by_all(std::size_t slot, Time now);
  // The slot that stands for this request of this rank, if there is one.
  std::optional<std::size_t> slot_of(int rank, const Request& request) const;
  // The same, for a request that is asked about again and again: `found` is from the last time.
  std::optional<std::size_t> slot_of(int rank, const Request& request, CachedAgreement& found) const;
  std::size_t slots() const { return cache_.size(); }  // every slot is below it

  // What can be done now, in the order in which all ranks do it. Each name comes once.
  std::vector<Response> take_ready();
  std::vector<Incomplete> incomplete() const;

 private:
  struct Pending {
    std::vector<std::shared_ptr<const Request>> requests;  // by place in the set
    std::size_t announced = 0;
    std::uint64_t order = 0;
    Time since;
  };
  struct ProcessSet {
    std::vector<int> ranks;
    std::unordered_map<std::string, Pending> table = {};
    std::map<std::string, std::vector<Response>> held = {};  // by group
    std::map<std::string, std::string> failed = {};          // groups with a mismatch: its text
  };

  void join(int rank, std::shared_ptr<const Request> request);
  void release_if_complete(ProcessSet& set, const std::string& name);
  void release(ProcessSet& set, Response response);
  void end_failed_groups(ProcessSet& set);
  bool is_complete(const ProcessSet& set, const Pending& pending) const;
  Response judge(const ProcessSet& set, const Pending& pending) const;
  static std::size_t place_in(const ProcessSet& set, int rank);

  std::map<int, ProcessSet> sets_;
  std::vector<bool> joined_;  // by rank
  std::vector<std::shared_ptr<const Request>> joins_;
  std::uint64_t next_order_ = 0;
  std::vector<Response> ready_;
  ResponseCache cache_;
};

}  // namespace lockstep::named

#include "lockstep/named/negotiation.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/number_list.h"
#include "lockstep/base/str.h"

namespace lockstep::named {
namespace {

bool takes_zeros(const Request& request) {
  return request.kind == Kind::BARRIER ||
         (request.kind == Kind::ALLREDUCE && (request.op == Op::SUM || request.op == Op::AVERAGE));
}

std::string title(const Request& request) {
  std::string text = str(name_of(request.kind), " ", in_quotes(request.name));
  if (request.process_set != GLOBAL_PROCESS_SET) text += str(" of process set ", request.process_set);
  return text;
}

// "ranks 0, 2 gave allreduce of float32[3], sum; rank 1 gave ...": ranks that gave the same stand together.
std::string who_gave_what(const std::vector<int>& ranks, const Agreement& agreement) {
  std::vector<std::pair<std::string, std::vector<int>>> given;
  for (std::size_t place = 0; place < ranks.size(); ++place) {
    if (agreement.requests[place] == nullptr) continue;
    std::string words = describe(*agreement.requests[place]);
    auto found =
        std::find_if(given.begin(), given.end(), [&](const auto& one) { return one.first == words; });
    if (found == given.end()) found = given.insert(given.end(), {std::move(words), {}});
    found->second.push_back(ranks[place]);
  }
  std::string text;
  for (const auto& [words, who] : given)
    text += str(text.empty() ? "" : "; ", rank_list(who), " gave ", words);
  return text;
}

// Everything in which any two ranks differ; empty if they agree.
std::string disagreement(const std::vector<int>& ranks, const Agreement& agreement) {
  for (const auto& request : agreement.requests) {
    if (request == nullptr) continue;
    const std::string what = differences(agreement.any(), *request);
    if (what.empty()) continue;
    return str(
        title(agreement.any()), ": the ranks disagree about ", what, ": ", who_gave_what(ranks, agreement),
        ". Every rank must submit a name with the same values; nothing was reduced, and other names go "
        "on");
  }
  return {};
}

}  // namespace

std::string to_text(const std::vector<Response>& responses) {
  std::string text;
  for (const Response& response : responses) {
    constexpr const char* WORDS[] = {"RUN", "MISMATCH", "ALL_JOINED"};
    text += str(WORDS[static_cast<std::size_t>(response.result)], " ", title(response.request()), "\n");
  }
  return text;
}

Negotiation::Negotiation(int ranks, std::size_t cache_capacity)
    : joined_(static_cast<std::size_t>(ranks), false), cache_(cache_capacity) {
  std::vector<int> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  add_process_set(GLOBAL_PROCESS_SET, std::move(all));
}

void Negotiation::add_process_set(int id, std::vector<int> ranks) {
  sets_.emplace(id, ProcessSet{.ranks = std::move(ranks)});
}

void Negotiation::remove_process_set(int id) {
  sets_.erase(id);
  cache_.forget_process_set(id);
}

std::size_t Negotiation::place_in(const ProcessSet& set, int rank) {
  const auto found = std::find(set.ranks.begin(), set.ranks.end(), rank);
  if (found == set.ranks.end())
    throw InternalError(str("named operations: rank ", rank, " is not in the set"));
  return static_cast<std::size_t>(found - set.ranks.begin());
}

std::optional<std::size_t> Negotiation::slot_of(int rank, const Request& request) const {
  if (request.kind >= Kind::BARRIER) return std::nullopt;
  return cache_.find(place_in(sets_.at(request.process_set), rank), request);
}

std::optional<std::size_t> Negotiation::slot_of(int rank, const Request& request,
                                                CachedAgreement& found) const {
  if (cache_.holds(found)) return found.slot;
  const auto slot = slot_of(rank, request);
  found = slot ? CachedAgreement{*slot, cache_.at(*slot)} : CachedAgreement{};
  return slot;
}

void Negotiation::announce_cached(int rank, std::size_t slot, Time now) {
  const Agreement& agreement = *cache_.at(slot);
  const ProcessSet& set = sets_.at(agreement.any().process_set);
  announce(rank, agreement.requests.at(place_in(set, rank)), now);
}

// They agree, because each stands by the request that it gave before.
void Negotiation::announce_cached_by_all(std::size_t slot, Time now) {
  const auto& agreement = cache_.at(slot);
  release(sets_.at(agreement->any().process_set), {.agreement = agreement, .since = now, .slot = slot});
}

void Negotiation::announce(int rank, std::shared_ptr<const Request> request, Time now) {
  if (request->kind == Kind::JOIN) return join(rank, std::move(request));
  ProcessSet& set = sets_.at(request->process_set);
  const std::string& name = request->name;
  Pending& pending = set.table[name];
  if (pending.announced == 0) {
    pending.requests.resize(set.ranks.size());
    pending.order = next_order_++;
    pending.since = now;
  }
  std::shared_ptr<const Request>& own = pending.requests[place_in(set, rank)];
  if (own != nullptr) throw InternalError(str(title(*request), " was announced twice by rank ", rank));
  own = request;
  ++pending.announced;
  release_if_complete(set, name);
}

// Names that only waited for this rank are complete now, in the order of their first announcement.
void Negotiation::join(int rank, std::shared_ptr<const Request> request) {
  joined_[static_cast<std::size_t>(rank)] = true;
  joins_.push_back(std::move(request));
  for (auto& [id, set] : sets_) {
    std::vector<std::pair<std::uint64_t, std::string>> complete;
    for (const auto& [name, pending] : set.table) {
      if (is_complete(set, pending)) complete.emplace_back(pending.order, name);
    }
    std::sort(complete.begin(), complete.end());
    for (const auto& [order, name] : complete) release_if_complete(set, name);
  }
  if (joins_.size() < joined_.size()) return;
  ready_.push_back({.result = Response::Result::ALL_JOINED,
                    .agreement = std::make_shared<Agreement>(Agreement{joins_}),
                    .last_joined = rank});
  joins_.clear();
  joined_.assign(joined_.size(), false);
}

bool Negotiation::is_complete(const ProcessSet& set, const Pending& pending) const {
  if (pending.announced == set.ranks.size()) return true;
  if (joins_.empty()) return false;
  for (std::size_t place = 0; place < set.ranks.size(); ++place) {
    if (pending.requests[place] == nullptr && !joined_[static_cast<std::size_t>(set.ranks[place])])
      return false;
  }
  return true;
}

Response Negotiation::judge(const ProcessSet& set, const Pending& pending) const {
  Response response{.agreement = std::make_shared<Agreement>(Agreement{pending.requests}),
                    .since = pending.since};
  response.text = disagreement(set.ranks, *response.agreement);
  std::vector<int> absent;
  for (std::size_t place = 0; place < set.ranks.size(); ++place) {
    if (pending.requests[place] == nullptr) absent.push_back(set.ranks[place]);
  }
  if (response.text.empty() && !absent.empty() && !takes_zeros(response.request())) {
    response.text =
        str(title(response.request()), ": ", rank_list(absent), absent.size() == 1 ? " has" : " have",
            " called join(), and only sums and averages of allreduce work with fewer ranks");
  }
  if (!response.text.empty()) response.result = Response::Result::MISMATCH;
  return response;
}

void Negotiation::release_if_complete(ProcessSet& set, const std::string& name) {
  const auto found = set.table.find(name);
  if (!is_complete(set, found->second)) return;
  Response response = judge(set, found->second);
  set.table.erase(found);
  release(set, std::move(response));
}

// A name of a group waits for the others of its group.
void Negotiation::release(ProcessSet& set, Response response) {
  if (response.result == Response::Result::MISMATCH) {
    for (const auto& request : response.agreement->requests) {
      if (request != nullptr && request->group_size > 0) set.failed[request->group] = response.text;
    }
    return ready_.push_back(std::move(response));
  }
  if (response.request().group_size == 0) return ready_.push_back(std::move(response));
  const std::string group = response.request().group;
  const auto size = static_cast<std::size_t>(response.request().group_size);
  std::vector<Response>& held = set.held[group];
  held.push_back(std::move(response));
  if (held.size() < size) return;
  for (Response& one : held) ready_.push_back(std::move(one));
  set.held.erase(group);
}

// A rank announces the names of a group at one time. So at the end of that, all that is left of a group in
// which there was a mismatch can end.
void Negotiation::end_failed_groups(ProcessSet& set) {
  for (const auto& [group, text] : std::exchange(set.failed, {})) {
    const auto end = [this, &text = text](std::shared_ptr<const Agreement> agreement) {
      ready_.push_back(
          {.result = Response::Result::MISMATCH, .agreement = std::move(agreement), .text = text});
    };
    if (const auto held = set.held.extract(group)) {
      for (const Response& one : held.mapped()) end(one.agreement);
    }
    std::erase_if(set.table, [&end, &group = group](const auto& entry) {
      const Agreement given{entry.second.requests};
      const bool is_of_it = given.any().group_size > 0 && given.any().group == group;
      if (is_of_it) end(std::make_shared<Agreement>(given));
      return is_of_it;
    });
  }
}

std::vector<Response> Negotiation::take_ready() {
  for (auto& [id, set] : sets_) end_failed_groups(set);
  for (const Response& response : ready_) {
    const auto& requests = response.agreement->requests;
    const bool everybody =
        std::all_of(requests.begin(), requests.end(), [](const auto& request) { return request != nullptr; });
    if (response.result == Response::Result::RUN && everybody && response.request().kind < Kind::BARRIER)
      cache_.put(response.agreement, response.slot);
  }
  return std::exchange(ready_, {});
}

std::vector<Incomplete> Negotiation::incomplete() const {
  std::vector<std::pair<std::uint64_t, Incomplete>> found;
  for (const auto& [id, set] : sets_) {
    for (const auto& [name, pending] : set.table) {
      Incomplete one{.since = pending.since};
      for (std::size_t place = 0; place < set.ranks.size(); ++place) {
        const auto& request = pending.requests[place];
        if (request != nullptr && one.request == nullptr) one.request = request;
        if (request != nullptr) {
          one.present.push_back(set.ranks[place]);
        } else if (!joined_[static_cast<std::size_t>(set.ranks[place])]) {
          one.missing.push_back(set.ranks[place]);
        }
      }
      found.emplace_back(pending.order, std::move(one));
    }
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Incomplete> list;
  for (auto& [order, one] : found) list.push_back(std::move(one));
  return list;
}

}  // namespace lockstep::named

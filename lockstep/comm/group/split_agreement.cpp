#include "lockstep/comm/group/split_agreement.h"

#include <algorithm>
#include <memory>
#include <span>

#include "lockstep/base/number_list.h"
#include "lockstep/base/str.h"
#include "lockstep/base/text_hash.h"

namespace lockstep {
namespace {

constexpr int TAG = -1;  // of the messages between members; a program's tags are not negative

// The message of a caller.
struct Ticket {
  std::uint64_t arguments = 0;  // hash of the arguments
  std::uint64_t number = 0;
};
struct Text {
  explicit Text(const std::string& text = {}) { text.copy(characters, sizeof(characters) - 1); }
  char characters[400] = {};
};
struct TicketWithText {
  Ticket ticket;
  Text text;
};

// Two long lists can look alike in a message, because it is shortened. So the hash is of every number.
std::uint64_t hash_of(const SplitRequest& split) {
  std::string text = str(static_cast<int>(split.callers), ' ', split.name);
  for (const auto& part : split.parts) {
    text += '/';
    for (const int rank : part) text += str(rank, ',');
  }
  return text_hash(text);
}

Request request_for_new_group(Verb verb, std::size_t bytes) {
  Request request;
  request.verb = verb;
  request.acting.purpose = Purpose::NEW_GROUP;
  request.count = bytes;
  return request;
}

// Returns every rank's `mine`, which must hold no pointers.
template <typename T> std::vector<T> gather_from_all(Backend& backend, const T& mine) {
  std::vector<T> all(static_cast<std::size_t>(backend.size()));
  Request request = request_for_new_group(Verb::ALL_GATHER, sizeof(T));
  request.input = &mine;
  for (T& place : all) request.outputs.push_back(std::as_writable_bytes(std::span(&place, 1)));
  const auto work = backend.start(std::move(request));
  if (work) work->wait(std::nullopt);
  return all;
}

// The same for some ranks, through messages. All receives and sends are under way before the first is waited
// for, so no order among the members matters.
template <typename T>
std::vector<T> gather_from(Backend& backend, const std::vector<int>& members, const T& mine) {
  struct Buffers {
    T mine;
    std::vector<T> all;
  };
  // A failure of the group ends this wait while messages may still be on their way, so they keep the buffers.
  const auto buffers = std::make_shared<Buffers>(Buffers{mine, std::vector<T>(backend.size())});
  std::vector<std::shared_ptr<WorkState>> under_way;
  for (const Verb verb : {Verb::RECV, Verb::SEND}) {
    for (const int member : members) {
      T& place = buffers->all[static_cast<std::size_t>(member)];
      if (member == backend.rank()) {
        place = mine;
        continue;
      }
      Request request = request_for_new_group(verb, sizeof(T));
      request.root = member;
      request.tag = TAG;
      request.input = &buffers->mine;
      request.output = verb == Verb::RECV ? &place : nullptr;
      request.keep_alive = buffers;
      under_way.push_back(backend.start(std::move(request)));
    }
  }
  for (const auto& work : under_way) {
    if (work) work->wait(std::nullopt);
  }
  return buffers->all;
}

std::string disagreement_of(int rank, const Text& text, int other, const Text& others_text) {
  const bool look_alike = std::string_view(text.characters) == others_text.characters;
  return str("ranks disagree about the groups to make: rank ", rank, " called ", text.characters, ", rank ",
             other, " called ", others_text.characters,
             look_alike ? "; the two differ behind what is shown of them" : "",
             "; all of them must make the same groups in the same order");
}

SplitAgreement agree_everybody(Backend& backend, const SplitRequest& split, const Ticket& mine) {
  SplitAgreement agreement;
  const auto all = gather_from_all(backend, mine);
  for (const Ticket& ticket : all) agreement.numbers.push_back(ticket.number);
  const auto other = std::find_if(all.begin(), all.end(), [&](const Ticket& ticket) {
    return ticket.arguments != all.front().arguments;
  });
  if (other == all.end()) return agreement;
  // Every rank sees the same tickets, so either all ranks come here or none.
  const auto texts = gather_from_all(backend, Text(describe_split(split)));
  const auto rank = static_cast<int>(other - all.begin());
  agreement.disagreement = disagreement_of(0, texts[0], rank, texts[static_cast<std::size_t>(rank)]);
  return agreement;
}

// A member may see a ticket that differs while other members still wait. Each ticket has its text, and the
// failure of the group tells the others.
SplitAgreement agree_members(Backend& backend, const SplitRequest& split, const Ticket& mine) {
  SplitAgreement agreement;
  const std::vector<int>& members = split.parts.front();
  const Text text(describe_split(split));
  const auto all = gather_from(backend, members, TicketWithText{mine, text});
  for (const TicketWithText& each : all) agreement.numbers.push_back(each.ticket.number);
  for (const int member : members) {
    const TicketWithText& theirs = all[static_cast<std::size_t>(member)];
    if (theirs.ticket.arguments == mine.arguments) continue;
    agreement.disagreement = disagreement_of(backend.rank(), text, member, theirs.text);
    break;
  }
  return agreement;
}

}  // namespace

SplitAgreement agree_on_split(Backend& backend, const SplitRequest& split, std::uint64_t number) {
  const Ticket mine{hash_of(split), number};
  return split.callers == SplitRequest::Callers::MEMBERS ? agree_members(backend, split, mine)
                                                         : agree_everybody(backend, split, mine);
}

void await_callers(Backend& backend, const SplitRequest& split) {
  if (split.callers == SplitRequest::Callers::MEMBERS) {
    gather_from(backend, split.parts.front(), std::byte{});
    return;
  }
  const auto work = backend.start(request_for_new_group(Verb::BARRIER, 0));
  if (work) work->wait(std::nullopt);
}

std::string_view name_of(SplitRequest::Callers callers) {
  return callers == SplitRequest::Callers::MEMBERS ? "split_over" : "split";
}

std::string describe_split(const SplitRequest& split) {
  std::string text = str(name_of(split.callers), " \"", printable(split.name), "\" of the ranks");
  for (const auto& part : split.parts)
    text += str(&part == &split.parts.front() ? " {" : ", {", number_list(part), "}");
  return split.parts.empty() ? text + " of nobody" : text;
}

const std::vector<int>* part_of(const std::vector<std::vector<int>>& parts, int rank) {
  const auto found = std::find_if(parts.begin(), parts.end(), [&](const auto& part) {
    return std::find(part.begin(), part.end(), rank) != part.end();
  });
  return found == parts.end() ? nullptr : &*found;
}

}  // namespace lockstep

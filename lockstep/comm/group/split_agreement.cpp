#include "lockstep/comm/group/split_agreement.h"

#include <algorithm>
#include <span>

#include "lockstep/base/number_list.h"
#include "lockstep/base/str.h"
#include "lockstep/base/text_hash.h"

namespace lockstep {
namespace {

struct Ticket {
  std::uint64_t arguments = 0;  // their hash
  std::uint64_t number = 0;
};

// Every rank's `mine`, which holds no pointers.
template <typename T> std::vector<T> gather_from_all(Backend& backend, const T& mine) {
  std::vector<T> all(static_cast<std::size_t>(backend.size()));
  Request request;
  request.verb = Verb::ALL_GATHER;
  request.count = sizeof(T);
  request.input = &mine;
  for (T& place : all) request.outputs.push_back(std::as_writable_bytes(std::span(&place, 1)));
  const auto work = backend.start(std::move(request));
  if (work) work->wait(std::nullopt);
  return all;
}

// The text of the failure when rank `other` asked for something else than rank 0; the same on every rank.
std::string split_disagreement(Backend& backend, const std::string& mine, std::size_t other) {
  struct Text {
    char characters[400] = {};
  } text;
  mine.copy(text.characters, sizeof(text.characters) - 1);
  const auto all = gather_from_all(backend, text);
  return str("ranks disagree about the groups to make: rank 0 called split ", all[0].characters, ", rank ",
             other, " called split ", all[other].characters,
             "; all ranks must make the same groups in the same order");
}

}  // namespace

SplitAgreement agree_on_split(Backend& backend, const std::vector<std::vector<int>>& parts,
                              const std::string& name, std::uint64_t number) {
  const std::string mine = describe_split(parts, name);
  const auto all = gather_from_all(backend, Ticket{text_hash(mine), number});
  SplitAgreement agreement;
  for (const Ticket& ticket : all) agreement.numbers.push_back(ticket.number);
  const auto other = std::find_if(all.begin(), all.end(), [&](const Ticket& ticket) {
    return ticket.arguments != all.front().arguments;
  });
  // Every rank sees the same tickets, so all of them come here or none.
  if (other != all.end())
    agreement.disagreement = split_disagreement(backend, mine, static_cast<std::size_t>(other - all.begin()));
  return agreement;
}

std::string describe_split(const std::vector<std::vector<int>>& parts, const std::string& name) {
  std::string text = str("\"", printable(name), "\" of the ranks");
  for (const auto& part : parts) text += str(&part == &parts.front() ? " {" : ", {", number_list(part), "}");
  return parts.empty() ? text + " of nobody" : text;
}

const std::vector<int>* part_of(const std::vector<std::vector<int>>& parts, int rank) {
  const auto found = std::find_if(parts.begin(), parts.end(), [&](const auto& part) {
    return std::find(part.begin(), part.end(), rank) != part.end();
  });
  return found == parts.end() ? nullptr : &*found;
}

}  // namespace lockstep

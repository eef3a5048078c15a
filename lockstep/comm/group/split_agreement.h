// SplitAgreement: what every backend needs for split(): that all ranks ask for the same groups, words for it
// when they do not, and one number that each rank has to tell the others.
//
//   const SplitAgreement all = agree_on_split(backend, parts, name, my_number);     // collective
//   if (all.disagreement) fail(mismatched(rank, *all.disagreement));
//   use(all.numbers[0]);
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/text_hash.h"
#include "lockstep/comm/backend.h"

namespace lockstep {

struct SplitAgreement {
  std::vector<std::uint64_t> numbers;       // by rank
  std::optional<std::string> disagreement;  // the text of the failure, the same on every rank
};
SplitAgreement agree_on_split(Backend& backend, const std::vector<std::vector<int>>& parts,
                              const std::string& name, std::uint64_t number);

// "rows" of the ranks {0, 1}, {2, 3}
std::string describe_split(const std::vector<std::vector<int>>& parts, const std::string& name);
// The part that `rank` is in, or null.
const std::vector<int>* part_of(const std::vector<std::vector<int>>& parts, int rank);

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
std::string split_disagreement(Backend& backend, const std::string& mine, std::size_t other);

}  // namespace lockstep

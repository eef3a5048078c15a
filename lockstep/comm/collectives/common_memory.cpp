#include "lockstep/comm/collectives/common_memory.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/all_gather.h"

namespace lockstep::comm {
namespace {

// A rank's message to the others. Rank 0 makes the memory.
struct Offer {
  std::uint64_t bytes = 0;
  std::uint64_t place = 0;
  std::uint64_t is_made = 0;
};

std::vector<Offer> all_offers(const ProcessGroup& group, const Offer& own) {
  constexpr std::size_t WORDS = sizeof(Offer) / sizeof(std::uint64_t);
  const std::array<std::uint64_t, WORDS> mine = {own.bytes, own.place, own.is_made};
  std::vector<std::uint64_t> words(WORDS * static_cast<std::size_t>(group.size()));
  all_gather(group, std::span<const std::uint64_t>(mine), std::span(words));
  std::vector<Offer> offers;
  for (std::size_t i = 0; i < words.size(); i += WORDS)
    offers.push_back({words[i], words[i + 1], words[i + 2]});
  return offers;
}

// Zeroed memory. If rank 0 fails to make it, it aborts the group, because the other ranks wait for it.
std::shared_ptr<void> make(const ProcessGroup& group, std::size_t bytes) {
  try {
    std::shared_ptr<void> memory = group.backend().make_common(bytes, /*holders=*/group.size());
    if (memory != nullptr) std::memset(memory.get(), 0, bytes);
    return memory;
  } catch (const Error& error) {
    group.backend().abort(str("allocate_common: ", bytes, " bytes: ", error.what()), error.code(), 0);
    throw;
  }
}

}  // namespace

// Rank 0 makes the memory before the exchange, so its place is known to all ranks after one all_gather.
std::shared_ptr<void> allocate_common(const ProcessGroup& group, std::size_t bytes) {
  Backend& backend = group.backend();
  Offer own{.bytes = bytes};
  std::shared_ptr<void> memory = group.rank() == 0 ? make(group, bytes) : nullptr;
  if (memory != nullptr) own.place = backend.place_of(memory.get()).value();
  own.is_made = memory != nullptr ? 1 : 0;
  const std::vector<Offer> offers = all_offers(group, own);
  for (std::size_t r = 1; r < offers.size(); ++r) {
    if (offers[r].bytes == offers[0].bytes) continue;
    throw Mismatch(str("allocate_common on group \"", group.name(), "\": rank 0 asks for ", offers[0].bytes,
                       " bytes and rank ", r, " for ", offers[r].bytes,
                       "; all ranks must ask for the same number"));
  }
  if (group.rank() != 0 && offers[0].is_made != 0) memory = backend.hold_common(0, offers[0].place, bytes);
  return memory;
}

}  // namespace lockstep::comm

#include "lockstep/parallel/zero/gradient_meeting.h"

#include <algorithm>
#include <span>
#include <utility>

#include "lockstep/comm/collectives/all_gather.h"
#include "lockstep/comm/collectives/barrier.h"
#include "lockstep/comm/purpose.h"

namespace lockstep {
namespace {

using Words = std::vector<std::uint64_t>;

constexpr std::size_t BITS = 64;
constexpr std::uint64_t NOWHERE = ~std::uint64_t{0};

std::size_t words_of_bits(std::size_t bits) { return (bits + BITS - 1) / BITS; }

// Of memory that the hosts of all ranks can read.
std::uint64_t place_of(const at::Tensor& flat, const ProcessGroup& group) {
  return flat.is_cpu() ? group.backend().place_of(flat.const_data_ptr()).value_or(NOWHERE) : NOWHERE;
}

// Message of a rank: the places of the buckets, then a bit per parameter.
Words message(const BucketStore* store, const ProcessGroup& group, const std::vector<bool>& used) {
  Words words;
  const std::size_t buckets = store == nullptr ? 0 : store->buckets();
  for (std::size_t b = 0; b < buckets; ++b) words.push_back(place_of(store->flat(b), group));
  words.resize(std::max<std::size_t>(1, buckets + words_of_bits(used.size())));  // a meeting says something
  for (std::size_t i = 0; i < used.size(); ++i) {
    if (used[i]) words[buckets + i / BITS] |= std::uint64_t{1} << (i % BITS);
  }
  return words;
}

}  // namespace

Met GradientMeeting::hold(Reason reason, const std::vector<bool>& used) const {
  const Acting acting(Purpose::SHARDED_STEP, model_, static_cast<std::int32_t>(reason));
  const Words mine = message(store_, group_, used);
  const std::size_t buckets = store_ == nullptr ? 0 : store_->buckets();
  const auto ranks = static_cast<std::size_t>(group_.size());
  Words all(mine.size() * ranks);
  comm::all_gather(group_, std::span<const std::uint64_t>(mine), std::span(all)).wait();
  Met met{.used = std::vector<bool>(used.size()), .flats = {}, .holders = {}};
  for (std::size_t r = 0; r < ranks; ++r) {
    const std::uint64_t* const bits = all.data() + r * mine.size() + buckets;
    for (std::size_t i = 0; i < used.size(); ++i)
      met.used[i] = met.used[i] || (bits[i / BITS] >> (i % BITS) & 1U) != 0;
  }
  for (std::size_t b = 0; b < buckets; ++b) {
    std::vector<const std::byte*> flats;
    for (std::size_t r = 0; r < ranks; ++r) {
      const std::uint64_t place = all[r * mine.size() + b];
      if (place == NOWHERE) return met;
      met.holders.push_back(group_.backend().memory_of(static_cast<int>(r), place, store_->flat(b).nbytes()));
      flats.push_back(met.holders.back().get());
    }
    met.flats.push_back(std::move(flats));
  }
  return met;
}

void GradientMeeting::end() const {
  const Acting acting(Purpose::SHARDED_STEP, model_, static_cast<std::int32_t>(Reason::END));
  comm::barrier(group_).wait();
}

}  // namespace lockstep

#include "lockstep/parallel/zero/gradient_meeting.h"

#include <optional>
#include <span>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/all_gather.h"
#include "lockstep/comm/collectives/barrier.h"
#include "lockstep/comm/purpose.h"
#include "lockstep/parallel/zero/zero_wrapper.h"

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

// Message of a rank: the places of the buckets, a bit per parameter, and the number of forwards that an
// exception left behind.
Words message(const BucketStore* store, const ProcessGroup& group, const std::vector<bool>& used,
              std::int32_t left_forwards) {
  Words words;
  const std::size_t buckets = store == nullptr ? 0 : store->buckets();
  for (std::size_t b = 0; b < buckets; ++b) words.push_back(place_of(store->flat(b), group));
  words.resize(buckets + words_of_bits(used.size()));
  for (std::size_t i = 0; i < used.size(); ++i) {
    if (used[i]) words[buckets + i / BITS] |= std::uint64_t{1} << (i % BITS);
  }
  words.push_back(static_cast<std::uint64_t>(left_forwards));
  return words;
}

// A rank that caught an exception and went on is at another step of the loop. Returns what to say of it.
std::optional<std::string> difference_of_steps(const Words& all, std::size_t words,
                                               const ProcessGroup& group) {
  const auto of = [&](int rank) { return all[(static_cast<std::size_t>(rank) + 1) * words - 1]; };
  int other = 0;
  while (other < group.size() && of(other) == of(group.rank())) ++other;
  if (other == group.size()) return {};
  return str(ZERO_WRAPPER.on(group), ": an exception ended a step on some ranks alone: it left ",
             of(group.rank()), " forwards behind on this rank, ", of(other), " on rank ", other,
             ", so this step would average different batches. End the loop on a rank whose step "
             "fails, or skip the step on all ranks. A forward that may be tried again is the "
             "module's own, model.module()->forward(x), which is not counted");
}

}  // namespace

Met GradientMeeting::hold(Reason reason, const std::vector<bool>& used) {
  const Acting acting(Purpose::SHARDED_STEP, model_, static_cast<std::int32_t>(reason));
  const Words mine = message(store_, group_, used, left_forwards_.count());
  const std::size_t buckets = store_ == nullptr ? 0 : store_->buckets();
  const auto ranks = static_cast<std::size_t>(group_.size());
  Words all(mine.size() * ranks);
  comm::all_gather(group_, std::span<const std::uint64_t>(mine), std::span(all)).wait();
  const std::optional<std::string> difference = difference_of_steps(all, mine.size(), group_);
  is_refused_ = difference.has_value();
  if (difference) throw Mismatch(*difference);
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

#include "lockstep/comm/backends/shared/copies.h"

#include <cstring>

#include "lockstep/comm/backends/shared/slices.h"

namespace lockstep::shared {
namespace {

constexpr std::size_t SLICED_FROM = std::size_t{64} << 10U;  // bytes of a broadcast

// Source and destination may be the same memory.
void copy_own(const std::byte* from, std::byte* to, std::size_t bytes) {
  if (bytes > 0 && from != to) std::memmove(to, from, bytes);
}

}  // namespace

void Broadcast::contribute() {
  const bool is_shared = !is_root() && engine_->arena().contains(request_.output, bytes());
  if (is_shared) {
    if (bytes() >= SLICED_FROM) lend(request_.output, /*others_write=*/true);
    return;
  }
  if (is_worth_it(is_root() ? bytes() : 0)) {
    const std::span data(static_cast<const std::byte*>(request_.input), is_root() ? bytes() : 0);
    if (offer(Parts(static_cast<std::size_t>(engine_->size()), data), /*is_same=*/true)) return;
  }
  if (!is_root()) return;
  guard(request_.input, bytes());
  contribute_data(request_.input, bytes());
}

// What the root has in its window.
bool Broadcast::pass() {
  return passage().advance([&](std::size_t begin, const Passage::Parts& pieces) {
    const auto& piece = pieces[static_cast<std::size_t>(call_.root)];
    std::memcpy(static_cast<std::byte*>(request_.output) + begin, piece.data(), piece.size());
  });
}

bool Broadcast::move(std::size_t slices) {
  if (!has_posted(call_.root)) return false;
  if (placement(call_.root) == Placement::WINDOWED) {
    if (method() == ExchangeMethod::WINDOW) return pass();
    if (!is_settled(call_.root)) return false;
  }
  if (placement(call_.root) == Placement::IN_PLACE && mine_ == Placement::IN_PLACE) {
    if (!all_posted()) return false;
    if (all_in_place()) return copy_slices(slices);
  }
  if (is_root() || bytes() == 0) return true;
  others_write_ = lent_ = false;  // after all
  return copy_out(call_.root, whole(call_.root, bytes()), request_.output, copied_);
}

bool Broadcast::all_in_place() const {
  for (int r = 0; r < engine_->size(); ++r) {
    if (placement(r) != Placement::IN_PLACE) return false;
  }
  return bytes() >= SLICED_FROM;
}

bool Broadcast::copy_slices(std::size_t slices) {
  if (engine_->failed()) slices = 0;  // its owner may have given up on a block; what others finished counts
  Slices work(*engine_, sequence_);
  const bool done =
      work.work(slice_plan(bytes(), engine_->size()), slices, [&](std::size_t begin, std::size_t size) {
        const std::byte* from = contribution(call_.root, bytes()) + begin;
        for (int r = 0; r < engine_->size(); ++r) {
          if (r != call_.root) std::memcpy(contribution(r, bytes()) + begin, from, size);
        }
      });
  if (done) others_write_ = lent_ = false;
  return done;
}

bool Broadcast::owes(int rank) const {
  if (is_posted(call_.root) && placement(call_.root) == Placement::WINDOWED && !staged_late_)
    return Exchange::owes(rank);
  if (mine_ == Placement::IN_PLACE) {
    const auto& reducing = engine_->control().rank_line(rank).reducing;
    return !is_posted(rank) || reducing.load(std::memory_order_relaxed) == sequence_;
  }
  return rank == call_.root && !is_root() && !is_complete(rank);
}

void Scatter::contribute() {
  if (is_root()) contribute_parts(request_.inputs);
}

bool Scatter::move(std::size_t) {
  auto* output = static_cast<std::byte*>(request_.output);
  if (is_root()) {
    const auto& own = request_.inputs[static_cast<std::size_t>(call_.root)];
    copy_own(own.data(), output, own.size());
    return true;
  }
  Source part;
  if (!has_posted(call_.root) || !find_part(call_.root, bytes_of(call_.count), part)) return false;
  return copy_out(call_.root, part, output, copied_);
}

FromEveryRank::FromEveryRank(SharedEngine& engine, Request&& request, std::uint64_t sequence)
    : Exchange(engine, std::move(request), sequence), copied_(static_cast<std::size_t>(engine_->size())) {}

bool FromEveryRank::move(std::size_t) {
  const ExchangeMethod now = method();
  if (now == ExchangeMethod::WINDOW) {
    return passage().advance([&](std::size_t begin, const Passage::Parts& pieces) {
      for (std::size_t r = 0; r < pieces.size(); ++r)
        copy_own(pieces[r].data(), request_.outputs[r].data() + begin, pieces[r].size());
    });
  }
  if (now == ExchangeMethod::UNDECIDED && may_come_late(mine_))
    return false;  // others may need a block of this rank
  bool all = true;
  // The own part first.
  for (int i = 0; i < engine_->size(); ++i) all = copy_from((engine_->rank() + i) % engine_->size()) && all;
  return all;
}

bool FromEveryRank::copy_from(int rank) {
  const auto at = static_cast<std::size_t>(rank);
  const auto& output = request_.outputs[at];
  if (rank == engine_->rank()) {
    if (copied_[at] < output.size()) copy_own(own_data().data(), output.data(), output.size());
    copied_[at] = output.size();
    return true;
  }
  Source source;
  if (!has_posted(rank) || !is_settled(rank) || !find_source(rank, source)) return false;
  return copy_out(rank, source, output.data(), copied_[at]);
}

void Gather::contribute() {
  if (call_.verb == Verb::ALL_GATHER && is_worth_it(own_data().size()) &&
      offer(Parts(static_cast<std::size_t>(engine_->size()), own_data()), /*is_same=*/true))
    return;
  contribute_data(request_.input, bytes_of(call_.count));
}

std::span<const std::byte> Gather::own_data() const {
  return {static_cast<const std::byte*>(request_.input), bytes_of(call_.count)};
}

// While it is warm.
void Gather::copied_in(std::span<const std::byte> piece) {
  if (!receives()) return;
  const auto own = static_cast<std::size_t>(engine_->rank());
  const auto begin = static_cast<std::size_t>(piece.data() - own_data().data());
  copy_own(piece.data(), request_.outputs[own].data() + begin, piece.size());
  copied_[own] = begin + piece.size();
}

void Gather::check_sizes(int rank, const Call& theirs) {
  if (!receives()) return;
  const std::size_t expected = request_.outputs[static_cast<std::size_t>(rank)].size();
  if (bytes_of(theirs.count) != expected) size_mismatch(rank, expected, bytes_of(theirs.count));
}

bool Gather::find_source(int rank, Source& source) {
  const std::size_t bytes = request_.outputs[static_cast<std::size_t>(rank)].size();
  if (bytes > 0) source = whole(rank, bytes);
  return true;
}

void AllToAll::contribute() {
  if (!offer(request_.inputs, /*is_same=*/false)) contribute_parts(request_.inputs);
}

std::span<const std::byte> AllToAll::own_data() const {
  return request_.inputs[static_cast<std::size_t>(engine_->rank())];
}

bool AllToAll::find_source(int rank, Source& source) {
  return find_part(rank, request_.outputs[static_cast<std::size_t>(rank)].size(), source);
}

}  // namespace lockstep::shared

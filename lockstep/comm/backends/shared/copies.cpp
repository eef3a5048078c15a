#include "lockstep/comm/backends/shared/copies.h"

#include <cstring>

#include "lockstep/comm/backends/shared/slices.h"

namespace lockstep::shared {
namespace {

// a broadcast of at least so many bytes is copied in slices
constexpr std::size_t SLICED_FROM = std::size_t{64} << 10U;

// Source and destination may be the same memory.
void copy_own(const std::byte* from, std::byte* to, std::size_t bytes) {
  if (bytes > 0 && from != to) std::memmove(to, from, bytes);
}

}  // namespace

void Broadcast::contribute() {
  const bool is_shared = !is_root() && context_->arena().contains(request_.output, bytes());
  if (is_shared) {
    if (bytes() >= SLICED_FROM) contribution_.lend(request_.output, Contribution::Access::WRITE);
    return;
  }
  const std::size_t gives = is_root() ? bytes() : 0;
  if (exchange_.is_worth_it(request_, gives)) {
    const std::span data(static_cast<const std::byte*>(request_.input), gives);
    const Parts given(static_cast<std::size_t>(context_->size()), data);
    if (exchange_.offer(request_, given, /*is_same=*/true, contribution_)) return;
  }
  if (!is_root()) return;
  guard(request_.input, bytes());
  contribution_.put(request_, request_.input, bytes());
}

// Takes the root's data out of its window.
bool Broadcast::pass() {
  return exchange_.passage().advance([&](std::size_t begin, const Parts& pieces) {
    const auto& piece = pieces[static_cast<std::size_t>(call_.root)];
    std::memcpy(static_cast<std::byte*>(request_.output) + begin, piece.data(), piece.size());
  });
}

bool Broadcast::move(std::size_t slices) {
  if (!has_posted(call_.root)) return false;
  const Placement of_root = sources_.placement(call_.root);
  if (of_root == Placement::WINDOWED) {
    const Exchange::Method method = exchange_.method(request_, agreement_, contribution_, sources_);
    if (method == Exchange::Method::WINDOW) return pass();
    if (!exchange_.is_settled(sources_, call_.root)) return false;
  }
  if (of_root == Placement::IN_PLACE && contribution_.placement() == Placement::IN_PLACE) {
    if (!all_posted()) return false;
    if (all_in_place()) return copy_slices(slices);
  }
  if (is_root() || bytes() == 0) return true;
  contribution_.withdraw();  // after all
  return copy_out(call_.root, sources_.whole(call_.root, bytes()), request_.output, copied_);
}

bool Broadcast::all_in_place() const {
  for (int r = 0; r < context_->size(); ++r) {
    if (sources_.placement(r) != Placement::IN_PLACE) return false;
  }
  return bytes() >= SLICED_FROM;
}

bool Broadcast::copy_slices(std::size_t slices) {
  // After a failure, the owner of a block may have given it up. Slices that other ranks finished still count.
  if (context_->failed()) slices = 0;
  Slices work(*context_, sequence_);
  const bool done =
      work.work(slice_plan(bytes(), context_->size()), slices, [&](std::size_t begin, std::size_t size) {
        const std::byte* from = sources_.address(call_.root, bytes()) + begin;
        for (int r = 0; r < context_->size(); ++r) {
          if (r != call_.root) std::memcpy(sources_.address(r, bytes()) + begin, from, size);
        }
      });
  if (done) contribution_.withdraw();
  return done;
}

bool Broadcast::owes(int rank) const {
  const bool is_windowed =
      sources_.is_posted(call_.root) && sources_.placement(call_.root) == Placement::WINDOWED;
  if (is_windowed && !sources_.reads_late_blocks()) return exchange_.owes(sources_, rank);
  if (contribution_.placement() == Placement::IN_PLACE) {
    const auto& reducing = context_->control().rank_line(rank).reducing;
    return !sources_.is_posted(rank) || reducing.load(std::memory_order_relaxed) == sequence_;
  }
  return rank == call_.root && !is_root() && !sources_.is_complete(rank);
}

void Scatter::contribute() {
  if (is_root()) contribution_.put_parts(request_, request_.inputs);
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

void Gather::contribute() {
  if (has_parts()) {
    if (!exchange_.offer(request_, request_.inputs, /*is_same=*/false, contribution_))
      contribution_.put_parts(request_, request_.inputs);
    return;
  }
  const auto own = own_data();
  if (call_.verb == Verb::ALL_GATHER && exchange_.is_worth_it(request_, own.size())) {
    const Parts given(static_cast<std::size_t>(context_->size()), own);
    if (exchange_.offer(request_, given, /*is_same=*/true, contribution_)) return;
  }
  contribution_.put(request_, own.data(), own.size());
}

bool Gather::move(std::size_t) {
  if (!receives()) return true;
  const Exchange::Method method = exchange_.method(request_, agreement_, contribution_, sources_);
  if (method == Exchange::Method::WINDOW) {
    return exchange_.passage().advance([&](std::size_t begin, const Parts& pieces) {
      for (std::size_t r = 0; r < pieces.size(); ++r)
        copy_own(pieces[r].data(), request_.outputs[r].data() + begin, pieces[r].size());
    });
  }
  // Another path was chosen, so other ranks may still need a block of this rank.
  if (method == Exchange::Method::UNDECIDED && may_come_late(contribution_.placement())) return false;
  bool all = true;
  // Begins with the rank's own part, so that not all ranks read rank 0's memory at the same time.
  for (int i = 0; i < context_->size(); ++i)
    all = copy_from((context_->rank() + i) % context_->size()) && all;
  return all;
}

bool Gather::copy_from(int rank) {
  const auto at = static_cast<std::size_t>(rank);
  const auto& output = request_.outputs[at];
  if (rank == context_->rank()) {
    if (copied_[at] < output.size()) copy_own(own_data().data(), output.data(), output.size());
    copied_[at] = output.size();
    return true;
  }
  Source source;
  if (!has_posted(rank) || !exchange_.is_settled(sources_, rank) || !find_source(rank, output.size(), source))
    return false;
  return copy_out(rank, source, output.data(), copied_[at]);
}

bool Gather::find_source(int rank, std::size_t bytes, Source& source) {
  if (has_parts()) return find_part(rank, bytes, source);
  if (bytes > 0) source = sources_.whole(rank, bytes);
  return true;
}

std::span<const std::byte> Gather::own_data() const {
  if (has_parts()) return request_.inputs[static_cast<std::size_t>(context_->rank())];
  return {static_cast<const std::byte*>(request_.input), bytes_of(call_.count)};
}

// Copies the piece to this rank's own output while it is in the cache.
void Gather::copied_in(std::span<const std::byte> piece) {
  if (has_parts() || !receives()) return;
  const auto own = static_cast<std::size_t>(context_->rank());
  const auto begin = static_cast<std::size_t>(piece.data() - own_data().data());
  copy_own(piece.data(), request_.outputs[own].data() + begin, piece.size());
  copied_[own] = begin + piece.size();
}

}  // namespace lockstep::shared

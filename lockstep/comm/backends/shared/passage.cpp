#include "lockstep/comm/backends/shared/passage.h"

#include <algorithm>
#include <cstring>

#include "lockstep/base/fail_point.h"
#include "lockstep/base/round_up.h"

namespace lockstep::shared {
namespace {

// Small enough that all slots together fit into the cache of one core, and large enough that handing over a
// portion costs little beside copying it. A window grows with the number of ranks, so portions shrink.
constexpr std::size_t SLOT = std::size_t{64} << 10U;
constexpr std::size_t LEAST_PIECE = std::size_t{16} << 10U;
constexpr std::size_t SLOTS_OF_PASSAGE = 4;
constexpr std::uint64_t ALL = (std::uint64_t{1} << NUMBER_BITS) - 1;  // more chunks than any message has

}  // namespace

PassagePlan passage_plan(int ranks, bool is_same) {
  const auto count = static_cast<std::size_t>(ranks);
  PassagePlan plan;
  plan.is_same = is_same;
  plan.head = table_bytes(count);
  plan.portion = is_same ? SLOT : std::max(SLOT / (count - 1) / LINE * LINE, LEAST_PIECE);
  plan.slot = is_same ? plan.portion : plan.portion * count;
  return plan;
}

std::size_t PassagePlan::place(std::size_t chunk, int to) const {
  return head + chunk % SLOTS_OF_PASSAGE * slot + (is_same ? 0 : static_cast<std::size_t>(to) * portion);
}

std::size_t PassagePlan::window_bytes() const { return head + SLOTS_OF_PASSAGE * slot; }

std::size_t PassagePlan::bytes_of(std::size_t chunk, std::size_t bytes) const {
  return std::min(portion, bytes - std::min(bytes, chunk * portion));
}

Passage::Passage(Context& context, const PassagePlan& plan, std::uint64_t sequence, Parts given,
                 std::vector<std::size_t> expected)
    : context_(&context),
      plan_(plan),
      sequence_(sequence),
      data_(std::move(given)),
      expected_(std::move(expected)),
      pieces_(expected_.size()) {
  for (std::size_t r = 0; r < expected_.size(); ++r) {
    if (static_cast<int>(r) != context_->rank()) gives_ = std::max(gives_, plan_.chunks(data_[r].size()));
    takes_ = std::max(takes_, plan_.chunks(expected_[r]));
  }
  if (takes_ == 0) publish_taken();
}

bool Passage::has_given(int rank, std::size_t chunks, std::memory_order order) const {
  const std::size_t there = std::min(chunks, plan_.chunks(expected_[static_cast<std::size_t>(rank)]));
  return rank == context_->rank() || there == 0 ||
         context_->control().window_line(rank).in.load(order) >= pack(sequence_, there);
}

// Returns whether every rank has taken the previous data of the slot.
bool Passage::may_give() const {
  if (given_ == gives_) return false;
  for (int r = 0; given_ >= SLOTS_OF_PASSAGE && r < context_->size(); ++r) {
    // Acquires that rank's last look at the slot.
    const auto& done = context_->control().window_line(r).done;
    if (r != context_->rank() &&
        done.load(std::memory_order_acquire) < pack(sequence_, given_ + 1 - SLOTS_OF_PASSAGE))
      return false;
  }
  return true;
}

bool Passage::may_take() const {
  if (taken_ == takes_) return false;
  for (int r = 0; r < context_->size(); ++r) {
    // Acquires the portion that the other rank has put there.
    if (!has_given(r, taken_ + 1, std::memory_order_acquire)) return false;
  }
  return true;
}

void Passage::give() {
  const int rank = context_->rank();
  std::byte* window = context_->membership().block(
      rank, context_->control().post_line(sequence_, rank).offset, plan_.window_bytes());
  for (int step = 1; step < context_->size(); ++step) {
    const int to = (rank + step) % context_->size();
    const auto& data = data_[static_cast<std::size_t>(to)];
    const std::size_t bytes = plan_.bytes_of(given_, data.size());
    if (bytes > 0) std::memcpy(window + plan_.place(given_, to), data.data() + given_ * plan_.portion, bytes);
    if (plan_.is_same) break;
  }
  ++given_;
  // Publishes the copies.
  context_->control().window_line(rank).in.store(pack(sequence_, given_), std::memory_order_release);
  context_->control().ring();
  fail_point("comm.window_in");
}

const Parts& Passage::pieces() {
  const int rank = context_->rank();
  for (int r = 0; r < context_->size(); ++r) {
    const auto at = static_cast<std::size_t>(r);
    const std::size_t bytes = plan_.bytes_of(taken_, expected_[at]);
    const std::byte* from = nullptr;
    if (bytes > 0 && r == rank) from = data_[at].data() + taken_ * plan_.portion;
    if (bytes > 0 && r != rank) {
      const std::uint64_t window = context_->control().post_line(sequence_, r).offset;
      from = context_->membership().block(r, window, plan_.window_bytes()) + plan_.place(taken_, rank);
    }
    pieces_[at] = {from, bytes};
  }
  return pieces_;
}

// Follows this rank's last look at the slots, so that their owners may fill them again. A rank that has taken
// everything publishes the largest number and waits for no chunk.
void Passage::publish_taken() {
  const std::uint64_t chunks = taken_ == takes_ ? ALL : taken_;
  context_->control()
      .window_line(context_->rank())
      .done.store(pack(sequence_, chunks), std::memory_order_release);
  context_->control().ring();
  fail_point("comm.window_taken");
}

bool Passage::owes(int rank) const {
  const auto& done = context_->control().window_line(rank).done;
  return !has_given(rank, takes_, std::memory_order_relaxed) ||
         done.load(std::memory_order_relaxed) < pack(sequence_, gives_ - std::min(gives_, SLOTS_OF_PASSAGE));
}

}  // namespace lockstep::shared

#include "lockstep/comm/backends/shared/exchange.h"

#include <algorithm>

#include "lockstep/comm/backends/shared/request_buffers.h"

namespace lockstep::shared {
namespace {

// Number of bytes from which data are read where they are. Reading through the kernel spares the copy into
// the window, but the kernel looks up every page. Below this size, the window is faster
// (bench/results/EXPERIMENTS.md).
constexpr std::size_t LENT_FROM = std::size_t{12} << 20U;

Exchange::Method choose(const Sources& sources, int ranks) {
  bool all_pass = true;
  bool all_lend = true;
  for (int r = 0; r < ranks; ++r) {
    const Placement placement = sources.placement(r);
    all_pass = all_pass && placement == Placement::WINDOWED;
    all_lend = all_lend && (placement == Placement::PRIVATE || placement == Placement::IN_PLACE ||
                            placement == Placement::NOWHERE);
  }
  return all_pass ? Exchange::Method::WINDOW : all_lend ? Exchange::Method::LENT : Exchange::Method::BLOCKS;
}

}  // namespace

// Counts the bytes that this rank receives, too. A rank that gives little must choose the same path as the
// ranks that give much.
bool Exchange::is_worth_it(const Request& request, std::size_t bytes) const {
  if (request.async_op || context_->size() == 1) return false;
  std::size_t takes = 0;
  for (int r = 0; r < context_->size(); ++r)
    takes += r == context_->rank() ? 0 : bytes_expected(request, context_->rank(), r);
  return context_->paths().path_of(std::max(bytes, takes)) == Path::WINDOW;
}

bool Exchange::lends(Verb verb, std::size_t bytes) const {
  const bool is_copied_by_all = verb == Verb::ALL_GATHER || verb == Verb::ALL_TO_ALL;
  return is_copied_by_all && bytes >= LENT_FROM && context_->membership().peers->lend_private_memory();
}

bool Exchange::offer(const Request& request, const Parts& given, bool is_same, Contribution& contribution) {
  const int own = context_->rank();
  std::size_t gives = 0;
  for (int r = 0; r < context_->size(); ++r) {
    const std::size_t bytes = r == own ? 0 : given[static_cast<std::size_t>(r)].size();
    gives = is_same ? std::max(gives, bytes) : gives + bytes;
  }
  if (!is_worth_it(request, gives)) return false;
  for (int r = 0; r < context_->size(); ++r) {
    const auto& part = given[static_cast<std::size_t>(r)];
    if (r == own || part.empty()) continue;
    if (context_->arena().contains(part.data(), part.size()) || is_overwritten(request, own, part))
      return false;
  }
  plan_ = passage_plan(context_->size(), is_same);
  if (lends(request.verb, gives)) {
    is_same ? contribution.lend_private(given[static_cast<std::size_t>(own)])
            : contribution.lend_parts(given, Placement::PRIVATE);
  } else {
    if (!contribution.use_window(plan_.window_bytes())) return false;
    contribution.lend_window(given);
  }
  given_ = given;
  return true;
}

Exchange::Method Exchange::method(const Request& request, Agreement& agreement, Contribution& contribution,
                                  Sources& sources) {
  if (method_ != Method::UNDECIDED || !agreement.all_posted(request)) return method_;
  const Method chosen = choose(sources, context_->size());
  if (chosen == Method::WINDOW && !begin_passage(request, agreement, sources)) return method_;
  if (chosen == Method::BLOCKS) {
    sources.read_late_blocks();
    if (may_come_late(contribution.placement())) {
      const auto& own = given_[static_cast<std::size_t>(context_->rank())];
      plan_.is_same ? contribution.put_late_block(own.data(), own.size())
                    : contribution.put_late_parts(given_);
    }
  }
  method_ = chosen;
  return method_;
}

// Returns false if a rank gives another number of bytes than this rank expects. The mismatch is recorded.
bool Exchange::begin_passage(const Request& request, Agreement& agreement, const Sources& sources) {
  const int own = context_->rank();
  std::vector<std::size_t> expected;
  for (int r = 0; r < context_->size(); ++r) {
    expected.push_back(bytes_expected(request, own, r));
    if (r != own && !agreement.check_size(r, expected.back(), sources.part_entry(r).bytes)) return false;
  }
  passage_.emplace(*context_, plan_, sequence_, std::move(given_), std::move(expected));
  return true;
}

bool Exchange::is_settled(const Sources& sources, int rank) const {
  if (!may_come_late(sources.placement(rank)) || method_ == Method::LENT) return true;
  return method_ == Method::BLOCKS && sources.has_late_block(rank);
}

bool Exchange::owes(const Sources& sources, int rank) const {
  if (rank == context_->rank()) return false;
  return method_ == Method::WINDOW ? passage_->owes(rank) : !sources.is_complete(rank);
}

}  // namespace lockstep::shared

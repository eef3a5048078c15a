#include "lockstep/job/join.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/all_gather.h"
#include "lockstep/comm/collectives/peer.h"

namespace lockstep {
namespace {

// Each rank announces two numbers: its state, then its settings and the number of its call.
constexpr std::size_t WORDS = 2;
enum State : std::uint64_t {
  STOOD_IN = 0,
  NEVER_STOOD_IN = 1,
  ACTIVE = 2
};  // ACTIVE + index of the joinable
constexpr unsigned SETTINGS_SHIFT = 32;

}  // namespace

// The state that the joinables of one Join share.
class JoinContext : public std::enable_shared_from_this<JoinContext> {
 public:
  JoinContext(ProcessGroup of, const JoinOptions& settings, std::size_t count)
      : group(std::move(of)), options(settings), joinables(count) {}

  std::shared_ptr<JoinNotice> start(std::uint64_t state, std::uint32_t what);
  JoinRound judge(const std::vector<std::uint64_t>& all) const;
  std::string message(const std::string& what) const {
    return str("Join on group \"", group.name(), "\", rank ", group.rank(), " of ", group.size(), ": ", what);
  }
  // Aborts the group, because other ranks may already be in the collectives that followed their announcement.
  [[noreturn]] void fail(const std::string& what) const {
    group.abort(message(what));
    throw Mismatch(message(what));
  }

  const ProcessGroup group;
  const JoinOptions options;
  const std::size_t joinables;

 private:
  void check_settings(const std::vector<std::uint64_t>& all) const;
  void check_early_end(const std::vector<int>& active, const std::vector<int>& joined) const;
};

namespace {

class StartedNotice : public JoinNotice {
 public:
  StartedNotice(std::shared_ptr<const JoinContext> context, std::vector<std::uint64_t> own)
      : context_(std::move(context)),
        own_(std::move(own)),
        all_(WORDS * static_cast<std::size_t>(context_->group.size())) {
    const Acting acting(Purpose::JOIN);
    work_ = comm::all_gather(context_->group, std::span<const std::uint64_t>(own_), std::span(all_),
                             /*async_op=*/true);
  }
  StartedNotice(const StartedNotice&) = delete;
  StartedNotice& operator=(const StartedNotice&) = delete;
  JoinRound wait() override {
    work_.wait();
    return context_->judge(all_);
  }
  const std::vector<std::uint64_t>& all() const { return all_; }

 private:
  std::shared_ptr<const JoinContext> context_;
  std::vector<std::uint64_t> own_, all_;
  Work work_;
};

class NoNotice : public JoinNotice {
 public:
  JoinRound wait() override { return {}; }
};

}  // namespace

std::shared_ptr<JoinNotice> JoinContext::start(std::uint64_t state, std::uint32_t what) {
  const std::uint64_t settings = (joinables << 2U) | (options.divide_by_initial_world_size ? 2U : 0U) |
                                 (options.throw_on_early_termination ? 1U : 0U);
  return std::make_shared<StartedNotice>(
      shared_from_this(), std::vector<std::uint64_t>{state, (settings << SETTINGS_SHIFT) | what});
}

void JoinContext::check_settings(const std::vector<std::uint64_t>& all) const {
  for (std::size_t i = WORDS + 1; i < all.size(); i += WORDS) {
    if (all[i] >> SETTINGS_SHIFT == all[1] >> SETTINGS_SHIFT) continue;
    fail(str(ranks_text(group, {static_cast<int>(i / WORDS)}),
             " joined with other options or another number of joinables than rank 0"));
  }
}

void JoinContext::check_early_end(const std::vector<int>& active, const std::vector<int>& joined) const {
  if (!options.throw_on_early_termination || active.empty() || joined.empty()) return;
  throw Mismatch(
      message(str(ranks_text(group, joined), joined.size() == 1 ? " has" : " have", " no more inputs while ",
                  ranks_text(group, active), active.size() == 1 ? " has" : " have",
                  " some, and throw_on_early_termination is set; all ranks stop here")));
}

// Every rank judges the same numbers, so all come to the same result.
JoinRound JoinContext::judge(const std::vector<std::uint64_t>& all) const {
  check_settings(all);
  std::vector<int> active;
  std::vector<int> joined;
  for (int r = 0; r < group.size(); ++r) {
    (all[WORDS * static_cast<std::size_t>(r)] >= ACTIVE ? active : joined).push_back(r);
  }
  check_early_end(active, joined);
  for (const int r : active) {
    const auto of = [&](int rank, std::size_t word) {
      return all[WORDS * static_cast<std::size_t>(rank) + word];
    };
    if (of(r, 0) == of(active[0], 0) && of(r, 1) == of(active[0], 1)) continue;
    const auto text = [&](int rank) {
      return str("call ", of(rank, 1) & 0xffffffffU, " of joinable ", of(rank, 0) - ACTIVE);
    };
    fail(str(ranks_text(group, {active[0]}), " announced ", text(active[0]), ", ", ranks_text(group, {r}),
             " announced ", text(r), "; ranks that have inputs must do the same in the same order"));
  }
  return {.active = static_cast<int>(active.size()), .newest_active = {active.empty() ? 0 : active.back()}};
}

std::shared_ptr<JoinNotice> JoinMembership::announce(std::uint32_t what) {
  static const auto none = std::make_shared<NoNotice>();
  if (!context_) return none;
  return context_->start(ACTIVE + index_, what);
}

JoinOptions JoinMembership::options() const {
  return context_ ? context_->options : JoinOptions{.enable = false};
}

// A join refers to its joinables by address and keeps their hooks, so neither may be replaced meanwhile.
Joinable& Joinable::operator=(Joinable&& other) {
  const auto is_in_join = [](const Joinable& one) { return one.membership_ && one.membership_->context_; };
  if (is_in_join(*this) || is_in_join(other))
    throw InvalidArgument(
        "Join: a joinable is assigned while it is in a join; assign before the join begins");
  membership_ = std::move(other.membership_);
  return *this;
}

Join::Join(std::vector<Joinable*> joinables, const JoinOptions& options) : joinables_(std::move(joinables)) {
  if (joinables_.empty()) throw InvalidArgument("Join: no joinables");
  const ProcessGroup& group = joinables_[0]->join_process_group();
  group.require_member("Join");
  for (const Joinable* joinable : joinables_) {
    if (joinable->join_process_group().shared_backend() != group.shared_backend()) {
      throw InvalidArgument("Join: the joinables are of different groups; nest a join for each group");
    }
    if (joinable->membership_->context_) throw InvalidArgument("Join: a joinable is already in a join");
  }
  if (!options.enable) return;
  context_ = std::make_shared<JoinContext>(group, options, joinables_.size());
  for (Joinable* joinable : joinables_) hooks_.push_back(joinable->join_hook(options));
  for (std::size_t i = 0; i < joinables_.size(); ++i) {
    joinables_[i]->membership_->context_ = context_;
    joinables_[i]->membership_->index_ = static_cast<std::uint32_t>(i);
  }
}

Join::~Join() { leave(); }

void Join::leave() {
  if (!std::exchange(context_, nullptr)) return;
  for (Joinable* joinable : joinables_) joinable->membership_->context_ = nullptr;
}

void Join::wait() {
  // This rank answers one announcement after another. In the round in which no rank is active, all ranks are
  // in wait(), and the join ends.
  const std::shared_ptr<JoinContext> context = context_;
  if (!context) return;
  JoinEnd end{.is_last_joiner = true};
  try {
    for (;;) {
      const auto notice = std::static_pointer_cast<StartedNotice>(
          context->start(end.is_last_joiner ? NEVER_STOOD_IN : STOOD_IN, 0));
      const JoinRound round = notice->wait();
      const auto& all = notice->all();
      if (round.active == 0) {
        for (int r = 0; r < context->group.size(); ++r) {
          if (all[WORDS * static_cast<std::size_t>(r)] == NEVER_STOOD_IN) end.newest = {r};
        }
        break;
      }
      const std::size_t announced = WORDS * static_cast<std::size_t>(round.newest_active.rank);
      const std::uint64_t index = all[announced] - ACTIVE;
      end.is_last_joiner = false;
      hooks_.at(index)->main_hook(static_cast<std::uint32_t>(all[announced + 1]), round);
    }
    for (const auto& hook : hooks_) hook->post_hook(end);
  } catch (...) {
    leave();
    throw;
  }
  leave();
}

std::shared_ptr<JoinNotice> Join::notify_join_context(Joinable& joinable, std::uint32_t what) {
  return joinable.membership_->announce(what);
}

void join(const std::vector<Joinable*>& joinables, const std::function<void()>& loop,
          const JoinOptions& options) {
  Join joined(joinables, options);
  loop();
  joined.wait();
}

}  // namespace lockstep

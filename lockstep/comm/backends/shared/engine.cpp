#include "lockstep/comm/backends/shared/engine.h"

#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/comm/backends/shared/backoff.h"
#include "lockstep/comm/backends/shared/copies.h"
#include "lockstep/comm/backends/shared/express.h"
#include "lockstep/comm/backends/shared/messages.h"
#include "lockstep/comm/backends/shared/reductions.h"
#include "lockstep/comm/backends/shared/split.h"
#include "lockstep/comm/group/split_agreement.h"

namespace lockstep::shared {
namespace {

// slices of each earlier operation that a call does when it posts another operation
constexpr std::size_t SHARE_OF_SLICES = 4;

// The target of a wait for something outside this group's operations.
class NothingOfTheGroup : public Waitable {
 public:
  bool ready() override { return false; }
  std::uint64_t progress() const override { return 0; }
  std::vector<int> awaited() const override { return {}; }
  std::string describe() const override { return A_WAIT_OUTSIDE; }
};

}  // namespace

SharedEngine::SharedEngine(Membership membership)
    : context_(std::move(membership)),
      pending_(context_),
      spins_(context_.size() <= cpus_of_ranks.load(std::memory_order_relaxed) ? 200 : 10) {}

std::shared_ptr<WorkState> SharedEngine::start(Request request) {
  auto lock = pending_.lock();
  const bool is_call_of_two = is_message(request.verb);
  if (!context_.usable()) {
    context_.throw_unusable(is_call_of_two ? std::string(name_of(request.verb))
                                           : describe_own(request, context_.sequencer().last() + 1));
  }
  std::shared_ptr<Operation> operation;
  FlightRecorder::Ticket record;
  if (is_call_of_two) record = context_.recorder().start(call_of(request), 0, request.tag);
  if (request.verb == Verb::SEND) {
    operation = std::make_shared<SendOperation>(context_, pending_, std::move(request));
  } else if (request.verb == Verb::RECV) {
    operation = std::make_shared<ReceiveOperation>(context_, pending_, std::move(request));
  } else {
    try {
      operation = begin_collective(request, lock, record);
    } catch (...) {
      if (context_.is_member()) context_.recorder().finish(record, FlightRecorder::FAILED);
      throw;
    }
  }
  if (operation) {
    operation->keep_record(record);
    operation->keep_engine(shared_from_this());
    pending_.add(operation);
  }
  if (!pending_.empty()) pending_.advance(SHARE_OF_SLICES);
  return operation;
}

template <typename Verb>
std::shared_ptr<Operation> SharedEngine::begin(Request& request, bool posted, PendingOperations::Lock& lock,
                                               FlightRecorder::Ticket& record) {
  const bool waits = !request.async_op;
  const std::uint64_t last = context_.sequencer().last();
  Verb collective(context_, pending_, std::move(request), posted ? last : last + 1);
  if (!posted) collective.post(lock, record);
  collective.keep_record(record);
  if (waits && collective.done_soon(spins_)) return nullptr;
  return std::make_shared<Verb>(std::move(collective));
}

std::shared_ptr<Operation> SharedEngine::begin_collective(Request& request, PendingOperations::Lock& lock,
                                                          FlightRecorder::Ticket& record) {
  const ExpressResult result = express(context_, request, call_of(request), spins_, record);
  if (result == ExpressResult::DONE) return nullptr;
  const bool posted = result == ExpressResult::POSTED;
  switch (request.verb) {
    case Verb::BARRIER: return begin<Barrier>(request, posted, lock, record);
    case Verb::BROADCAST: return begin<Broadcast>(request, posted, lock, record);
    case Verb::ALL_REDUCE:
    case Verb::REDUCE: return begin<Reduction>(request, posted, lock, record);
    case Verb::REDUCE_SCATTER: return begin<ReduceScatter>(request, posted, lock, record);
    case Verb::ALL_GATHER:
    case Verb::GATHER:
    case Verb::ALL_TO_ALL: return begin<Gather>(request, posted, lock, record);
    case Verb::SCATTER: return begin<Scatter>(request, posted, lock, record);
    case Verb::SEND:
    case Verb::RECV: break;
  }
  throw InternalError("a message is not a collective");
}

void SharedEngine::help_this() {
  const auto lock = pending_.try_lock();
  if (lock.owns_lock() && context_.usable()) pending_.advance(ALL_SLICES);
}

void SharedEngine::require_usable(std::string_view what) {
  const auto lock = pending_.lock();
  if (!context_.usable()) context_.throw_unusable(std::string(what));
}

std::shared_ptr<void> SharedEngine::allocate_shared(std::size_t bytes) {
  require_usable("allocate_shared");
  const std::size_t offset = arena().allocate(bytes);
  std::memset(arena().at(offset), 0, bytes);
  return {arena().at(offset), [own = context_.membership().own, offset](void*) { own->arena.free(offset); }};
}

std::shared_ptr<void> SharedEngine::make_common(std::size_t bytes, int holders) {
  require_usable("make_common");
  return RankMemory::make_common(context_.membership().own, bytes, holders);
}

std::shared_ptr<void> SharedEngine::hold_common(int maker, std::uint64_t place, std::size_t bytes) {
  return shared::hold_common(memory_of(maker, place, bytes));
}

std::optional<std::uint64_t> SharedEngine::place_of(const void* memory) {
  if (!arena().contains(memory, 1)) return std::nullopt;
  return arena().offset_of(memory);
}

std::shared_ptr<std::byte> SharedEngine::memory_of(int rank, std::uint64_t place, std::size_t bytes) {
  require_usable("memory_of");
  const Membership& membership = context_.membership();
  return {membership.data.at(static_cast<std::size_t>(rank)), membership.block(rank, place, bytes)};
}

std::shared_ptr<Backend> SharedEngine::make_groups(const SplitRequest& split) {
  require_usable(name_of(split.callers));
  context_.membership().own->settle();
  return split_group(*this, context_.membership(), split);
}

void SharedEngine::check_peers() {
  const auto lock = pending_.lock();
  NothingOfTheGroup nothing;
  if (context_.usable()) {
    if (const auto lost = context_.diagnosis().lost_peer(nothing)) context_.record_failure(*lost);
  }
  if (!context_.usable()) context_.throw_unusable(nothing.describe());
}

void SharedEngine::abort(const std::string& reason, ErrorCode code, int peer) {
  const auto lock = pending_.lock();
  context_.record_failure(aborted(rank(), reason, code, peer));
}

void SharedEngine::fail(const GroupFailure& failure, const std::string& what) {
  const auto lock = pending_.lock();  // NOLINT(clang-analyzer-deadcode.DeadStores): held until the throw
  context_.record_failure(failure);
  context_.throw_unusable(what);
}

void SharedEngine::close() {
  const auto lock = pending_.lock();
  if (!context_.is_member()) return;
  pending_.give_up();
  context_.leave();
}

}  // namespace lockstep::shared

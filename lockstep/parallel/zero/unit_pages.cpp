#include "lockstep/parallel/zero/unit_pages.h"

#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/round_up.h"
#include "lockstep/comm/collectives/barrier.h"
#include "lockstep/comm/collectives/common_memory.h"

namespace lockstep {
namespace {

constexpr std::size_t PAGE = ReservedMemory::PAGE;

}  // namespace

struct UnitPages::Holders {
  pthread_mutex_t mutex;
  std::uint32_t of_unit[1];  // as many as there are units

  static std::size_t bytes(std::size_t units) { return sizeof(Holders) + units * sizeof(std::uint32_t); }

  void make_mutex() {
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&mutex, &kind);
    pthread_mutexattr_destroy(&kind);
  }
};

// The counts of a rank that died with the lock may be wrong by one: then pages stay that might go.
class UnitPages::Lock {
 public:
  explicit Lock(Holders& holders) : mutex_(holders.mutex) {
    const int error = pthread_mutex_lock(&mutex_);
    if (error == EOWNERDEAD) pthread_mutex_consistent(&mutex_);
    if (error != 0 && error != EOWNERDEAD) throw SystemError("cannot lock the units of parameters", error);
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  ~Lock() { pthread_mutex_unlock(&mutex_); }

 private:
  pthread_mutex_t& mutex_;
};

UnitPages::UnitPages(const UnitPlan& plan, std::vector<ByteRange> kept, const ProcessGroup* machine)
    : plan_(plan), kept_(std::move(kept)) {
  if (machine == nullptr) {
    memory_ = std::make_unique<ReservedMemory>(plan_.bytes);
  } else {
    front_ = round_up(Holders::bytes(plan_.units.size()), PAGE);
    const std::size_t bytes = front_ + plan_.bytes;
    memory_ = std::make_unique<ReservedMemory>(comm::allocate_common(*machine, bytes + PAGE), bytes);
    memory_->admit(0, front_);
    holders_ = reinterpret_cast<Holders*>(memory_->data());
    if (machine->rank() == 0) holders_->make_mutex();
    comm::barrier(*machine).wait();
  }
  memory_->admit(front_, front_ + plan_.resident_end);
}

UnitPages::~UnitPages() = default;

bool UnitPages::contains(const void* address) const {
  const auto* const byte = static_cast<const std::byte*>(address);
  return byte >= data() && byte < data() + plan_.bytes;
}

std::size_t UnitPages::kept_bytes() const {
  std::size_t bytes = 0;
  for (const ByteRange& range : kept_) bytes += range.end - range.begin;
  return bytes;
}

// Pages between what is kept. Those in which something begins or ends that is kept stay.
void UnitPages::each_gap(std::size_t unit, const Gap& call) const {
  const UnitSpec& spec = plan_.units[unit];
  std::size_t at = spec.begin;
  const auto end_gap = [&](std::size_t end) {
    const std::size_t first = round_up(at, PAGE), last = end / PAGE * PAGE;
    if (last > first) call(front_ + first, front_ + last);
  };
  for (const ByteRange& range : kept_) {
    const ByteRange here = common_range(spec, range);
    if (here.begin == here.end) continue;
    end_gap(here.begin);
    at = here.end;
  }
  end_gap(spec.end);
}

void UnitPages::take(std::size_t unit) {
  const UnitSpec& spec = plan_.units[unit];
  if (holders_ != nullptr) {
    const Lock lock(*holders_);
    ++holders_->of_unit[unit];
  }
  memory_->admit(front_ + spec.begin, front_ + spec.end);
}

void UnitPages::let_go(std::size_t unit) {
  const auto discard = [&](std::size_t begin, std::size_t end) { memory_->discard(begin, end); };
  if (holders_ == nullptr) return each_gap(unit, discard);
  const Lock lock(*holders_);
  const bool is_last = --holders_->of_unit[unit] == 0;
  const auto hide = [&](std::size_t begin, std::size_t end) { memory_->hide(begin, end); };
  is_last ? each_gap(unit, discard) : each_gap(unit, hide);
}

// Bits that are all ones are NaN of any floating point.
void UnitPages::poison(std::size_t unit, std::span<std::byte> own) {
  const UnitSpec& spec = plan_.units[unit];
  memory_->admit(front_ + spec.begin, front_ + spec.end);
  const std::vector<std::byte> kept(own.begin(), own.end());
  if (holders_ != nullptr) memory_->replace(front_ + spec.begin, front_ + spec.end);
  std::memset(data() + spec.begin, 0xFF, spec.end - spec.begin);
  std::copy(kept.begin(), kept.end(), own.begin());
}

}  // namespace lockstep

#include "lockstep/parallel/zero/unit_pages.h"

#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/round_up.h"
#include "lockstep/comm/collectives/all_gather.h"
#include "lockstep/comm/collectives/barrier.h"
#include "lockstep/comm/collectives/broadcast.h"
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

UnitPages::UnitPages(const UnitPlan& plan, std::vector<ByteRange> kept, const ByteRange& own,
                     std::shared_ptr<const MachineGroups> machines)
    : plan_(plan), kept_(std::move(kept)), own_(own), machines_(std::move(machines)) {
  if (!machines_) {
    memory_ = std::make_unique<ReservedMemory>(plan_.bytes);
  } else {
    const ProcessGroup& machine = machines_->machine();
    front_ = round_up(Holders::bytes(plan_.units.size()), PAGE);
    const std::size_t bytes = front_ + plan_.bytes;
    memory_ = std::make_unique<ReservedMemory>(comm::allocate_common(machine, bytes + PAGE), bytes);
    memory_->admit(0, front_);
    holders_ = reinterpret_cast<Holders*>(memory_->data());
    if (machine.rank() == 0) holders_->make_mutex();
    comm::barrier(machine).wait();
  }
  memory_->admit(front_, front_ + plan_.resident_end);
}

UnitPages::~UnitPages() = default;

std::optional<std::size_t> UnitPages::unit_of(c10::StorageImpl& storage) const {
  // Without the checks of a storage whose memory is perhaps nowhere (tensor/meta_init.h).
  const auto* const address = static_cast<const std::byte*>(storage._mutable_data_ptr_no_checks().get());
  if (address < data() + plan_.resident_end || address >= data() + plan_.bytes) return std::nullopt;
  const auto byte = static_cast<std::size_t>(address - data());
  const auto behind = std::upper_bound(plan_.units.begin(), plan_.units.end(), byte,
                                       [](std::size_t at, const UnitSpec& unit) { return at < unit.begin; });
  if (behind == plan_.units.begin()) return std::nullopt;
  return static_cast<std::size_t>(behind - plan_.units.begin()) - 1;
}

std::size_t UnitPages::bytes(std::size_t all, std::size_t live) const {
  for (const ByteRange& range : kept_) live += range.end - range.begin;
  return std::min(all, live);
}

at::Tensor UnitPages::place(std::size_t parameter, const at::Tensor& like, std::shared_ptr<void> owner) {
  return tensor_over(owner, data() + plan_.begins[parameter], like.sizes(),
                     like.options().requires_grad(false));
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
void UnitPages::poison(std::size_t unit) {
  const UnitSpec& spec = plan_.units[unit];
  const ByteRange here = common_range(spec, own_);
  memory_->admit(front_ + spec.begin, front_ + spec.end);
  const std::vector<std::byte> kept(data() + here.begin, data() + here.end);
  if (holders_ != nullptr) memory_->replace(front_ + spec.begin, front_ + spec.end);
  std::memset(data() + spec.begin, 0xFF, spec.end - spec.begin);
  std::copy(kept.begin(), kept.end(), data() + here.begin);
}

Work UnitPages::gather(std::size_t /*unit*/, const ProcessGroup& group, const std::vector<ByteRange>& parts) {
  std::vector<std::span<std::byte>> whole;
  for (const ByteRange& range : parts) whole.emplace_back(data() + range.begin, range.end - range.begin);
  const auto own = whole[static_cast<std::size_t>(group.rank())];
  return comm::all_gather(group, own.data(), own.size(), DType::UINT8, std::move(whole), /*async_op=*/true,
                          shared_from_this());
}

void UnitPages::spread(std::size_t unit, const ProcessGroup& group) {
  const UnitSpec& spec = plan_.units[unit];
  std::byte* const begin = data() + spec.begin;
  if (machines_) return machines_->spread(begin, spec.end - spec.begin);
  comm::broadcast(group, begin, spec.end - spec.begin, DType::UINT8, GroupRank{0}).wait();
}

}  // namespace lockstep

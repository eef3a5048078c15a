#include "lockstep/parallel/zero/gathered_units.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "lockstep/base/fail_point.h"
#include "lockstep/base/log.h"
#include "lockstep/base/round_up.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/all_gather.h"
#include "lockstep/comm/purpose.h"
#include "lockstep/parallel/zero/gradient_meeting.h"

namespace lockstep {
namespace {

constexpr std::size_t PAGE = ReservedMemory::PAGE;

ByteRange common(const ByteRange& a, const ByteRange& b) {
  const std::size_t begin = std::min(std::max(a.begin, b.begin), a.end);  // within a, also if empty
  return {.begin = begin, .end = std::max(begin, std::min(a.end, b.end))};
}

}  // namespace

GatheredUnits::GatheredUnits(UnitPlan plan, std::vector<ByteRange> parts, ProcessGroup group,
                             std::vector<std::string> names)
    : plan_(std::move(plan)),
      parts_(std::move(parts)),
      group_(std::move(group)),
      names_(std::move(names)),
      memory_(std::make_shared<ReservedMemory>(plan_.bytes)),
      units_(plan_.units.size()) {
  memory_->admit(0, memory_->bytes());
  for (Unit& unit : units_) unit.state = State::HERE;
}

std::size_t GatheredUnits::bytes() const {
  std::size_t largest = 0;
  for (const UnitSpec& unit : plan_.units) largest = std::max(largest, unit.end - unit.begin);
  const std::size_t live = (KEPT + 1) * largest;
  return std::min(memory_->bytes(), mine().end - mine().begin + live);
}

bool GatheredUnits::contains(const void* address) const {
  const auto* const byte = static_cast<const std::byte*>(address);
  return byte >= memory_->data() && byte < memory_->data() + memory_->bytes();
}

void GatheredUnits::ignore(const void* storage) {
  const std::lock_guard lock(mutex_);
  ignored_.insert(storage);
}

void GatheredUnits::begin_operator() {
  const std::lock_guard lock(mutex_);
  order_.in_operator.clear();
}

void GatheredUnits::use(const void* storage, const void* address) noexcept {
  const std::lock_guard lock(mutex_);
  if (ignored_.contains(storage)) return;
  const auto byte = static_cast<std::size_t>(static_cast<const std::byte*>(address) - memory_->data());
  if (holds_all_) return;
  const auto behind = std::upper_bound(plan_.units.begin(), plan_.units.end(), byte,
                                       [](std::size_t at, const UnitSpec& unit) { return at < unit.begin; });
  if (behind == plan_.units.begin()) return;
  const auto unit = static_cast<std::size_t>(behind - plan_.units.begin()) - 1;
  order_.in_operator.push_back(unit);
  if (!order_.recent.empty() && order_.recent.front() == unit) return;
  try {
    order_.current.push_back(unit);
    make_here(unit);
    std::erase(order_.recent, unit);
    order_.recent.push_front(unit);
    trim();
    prefetch();
  } catch (const std::exception& error) {
    log(LogLevel::WARNING,
        str("the unit of parameter ", in_quotes(names_[unit]), " was not gathered: ", error.what()));
    if (!failure_) failure_ = std::current_exception();
    const ByteRange all{.begin = plan_.units[unit].begin, .end = plan_.units[unit].end};
    const ByteRange own = common(all, mine());
    units_[unit] = Unit{.state = State::HERE, .work = {}};
    std::memset(memory_->data() + all.begin, 0xFF, own.begin - all.begin);  // NaN of any floating point
    std::memset(memory_->data() + own.end, 0xFF, all.end - own.end);
  }
}

void GatheredUnits::rethrow() {
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void GatheredUnits::begin_gather(std::size_t unit) {
  const UnitSpec& spec = plan_.units[unit];
  memory_->admit(spec.begin, spec.end);
  std::vector<std::span<std::byte>> parts;
  for (const ByteRange& part : parts_) {
    const ByteRange here = common({.begin = spec.begin, .end = spec.end}, part);
    parts.emplace_back(memory_->data() + here.begin, here.end - here.begin);
  }
  const auto own = parts[static_cast<std::size_t>(group_.rank())];
  const Acting acting(
      Purpose::SHARDED_STEP, str("the unit of parameter ", in_quotes(names_[unit])),
      static_cast<std::int32_t>(GradientMeeting::Reason::UNITS) + static_cast<std::int32_t>(unit));
  units_[unit].work = comm::all_gather(group_, own.data(), own.size(), DType::UINT8, std::move(parts),
                                       /*async_op=*/true, memory_);
  units_[unit].state = State::COMING;
  fail_point("zero.gather");
}

void GatheredUnits::finish_gather(std::size_t unit) {
  std::exchange(units_[unit].work, Work()).wait();
  units_[unit].state = State::HERE;
}

void GatheredUnits::make_here(std::size_t unit) {
  if (units_[unit].state == State::GONE) begin_gather(unit);
  if (units_[unit].state == State::COMING) finish_gather(unit);
}

void GatheredUnits::prefetch() {
  const std::size_t next = order_.current.size();
  const bool is_as_before = next < order_.last.size() && order_.last[next - 1] == order_.current.back();
  if (!is_as_before || units_[order_.last[next]].state != State::GONE) return;
  begin_gather(order_.last[next]);
}

// Pages in which this rank's part begins or ends stay.
void GatheredUnits::let_go(std::size_t unit) {
  const UnitSpec& spec = plan_.units[unit];
  const ByteRange own = common({.begin = spec.begin, .end = spec.end}, mine());
  units_[unit].state = State::GONE;
  if (own.begin == own.end) return memory_->discard(spec.begin, spec.end);
  memory_->discard(spec.begin, own.begin / PAGE * PAGE);
  memory_->discard(round_up(own.end, PAGE), spec.end);
}

void GatheredUnits::trim() {
  for (std::size_t i = order_.recent.size(); i-- > KEPT;) {
    const std::size_t unit = order_.recent[i];
    if (std::find(order_.in_operator.begin(), order_.in_operator.end(), unit) != order_.in_operator.end())
      continue;
    order_.recent.erase(order_.recent.begin() + static_cast<std::ptrdiff_t>(i));
    let_go(unit);
  }
}

void GatheredUnits::hold_all() {
  const std::lock_guard lock(mutex_);
  for (std::size_t unit = 0; unit < units_.size(); ++unit) make_here(unit);
  holds_all_ = true;
}

void GatheredUnits::forget() {
  const std::lock_guard lock(mutex_);
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (units_[unit].state == State::COMING) finish_gather(unit);
    if (units_[unit].state == State::HERE) let_go(unit);
  }
  order_.recent.clear();
  order_.in_operator.clear();
  if (!order_.current.empty()) order_.last = std::exchange(order_.current, {});
  holds_all_ = false;
}

}  // namespace lockstep

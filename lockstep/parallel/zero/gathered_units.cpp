#include "lockstep/parallel/zero/gathered_units.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <utility>

#include "lockstep/base/fail_point.h"
#include "lockstep/base/log.h"
#include "lockstep/base/round_up.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/all_gather.h"
#include "lockstep/comm/collectives/broadcast.h"
#include "lockstep/comm/purpose.h"
#include "lockstep/parallel/zero/gradient_meeting.h"
#include "lockstep/parallel/zero/zero_wrapper.h"

namespace lockstep {
namespace {

constexpr std::size_t PAGE = ReservedMemory::PAGE;
constexpr std::size_t DEFAULT_LIVE = 3;          // units
constexpr std::size_t LOOKAHEAD = 16;            // uses
constexpr std::size_t LONGEST_STEP = 1U << 20U;  // uses that are recorded

ByteRange common(const ByteRange& a, const ByteRange& b) {
  const std::size_t begin = std::min(std::max(a.begin, b.begin), a.end);  // within a, also if empty
  return {.begin = begin, .end = std::max(begin, std::min(a.end, b.end))};
}

ByteRange range_of(const UnitSpec& unit) { return {.begin = unit.begin, .end = unit.end}; }

bool contains_unit(std::span<const std::size_t> units, std::size_t unit) {
  return std::find(units.begin(), units.end(), unit) != units.end();
}

}  // namespace

GatheredUnits::GatheredUnits(UnitPlan plan, std::vector<ByteRange> parts, ProcessGroup group,
                             std::vector<std::string> names, const UnitOptions& options)
    : plan_(std::move(plan)),
      parts_(std::move(parts)),
      group_(std::move(group)),
      names_(std::move(names)),
      memory_(std::make_shared<ReservedMemory>(plan_.bytes)),
      units_(plan_.units.size()) {
  memory_->admit(0, plan_.resident_end);
  std::size_t largest = 0;
  for (const UnitSpec& unit : plan_.units) largest = std::max(largest, unit.elements);
  limits_ = {.live = options.max_live.value_or(DEFAULT_LIVE * largest),
             .prefetch = options.prefetch.value_or(largest)};
}

std::size_t GatheredUnits::bytes() const {
  double largest = 0;
  double width = 0;  // bytes of an element, with what pages add
  for (const UnitSpec& unit : plan_.units) {
    const auto bytes = static_cast<double>(unit.end - unit.begin);
    largest = std::max(largest, bytes);
    width = std::max(width, bytes / static_cast<double>(unit.elements));
  }
  const auto all = static_cast<double>(plan_.bytes - plan_.resident_end);
  const double live = std::max(largest, width * static_cast<double>(limits_.live));
  const double gathered = std::min(all, static_cast<double>(mine().end - mine().begin) + live);
  return plan_.resident_end + static_cast<std::size_t>(std::ceil(gathered));
}

bool GatheredUnits::contains(const void* address) const {
  const auto* const byte = static_cast<const std::byte*>(address);
  return byte >= memory_->data() && byte < memory_->data() + memory_->bytes();
}

// Operators of `fill` find the unit there, and need no lock.
void GatheredUnits::fill(std::size_t unit, const std::function<void()>& fill) {
  const UnitSpec& spec = plan_.units[unit];
  set_held(true);
  memory_->admit(spec.begin, spec.end);
  fill();
  const Acting acting(Purpose::FIRST_WEIGHTS, str("the unit of parameter ", in_quotes(names_[unit])));
  comm::broadcast(group_, memory_->data() + spec.begin, spec.end - spec.begin, DType::UINT8, GroupRank{0})
      .wait();
  set_held(false);
  const std::lock_guard lock(mutex_);
  let_go(unit);
}

void GatheredUnits::set_held(bool is_held) {
  const std::lock_guard lock(mutex_);
  live_.is_all = is_held;
}

void GatheredUnits::ignore(const void* storage) {
  const std::lock_guard lock(mutex_);
  ignored_.insert(storage);
}

bool GatheredUnits::is_there(const void* storage, const void* address) {
  const std::lock_guard lock(mutex_);
  return live_.is_all || ignored_.contains(storage) || !unit_at(address);
}

void GatheredUnits::begin_forward(bool is_training) {
  const std::lock_guard lock(mutex_);
  order_.pass = is_training ? Pass::TRAINING : Pass::EVALUATION;
  order_.began = order_.current.size();
  order_.next = is_training ? order_.began : 0;
  order_.latest.reset();
}

void GatheredUnits::end_forward() {
  settle();
  const std::lock_guard lock(mutex_);
  if (order_.pass == Pass::TRAINING && order_.began == 0) order_.forward = order_.current.size();
  if (order_.pass == Pass::EVALUATION) order_.pass = Pass::NONE;
}

// --------------------------------------------------------------------------------------------------- reading

std::optional<std::size_t> GatheredUnits::unit_at(const void* address) const {
  const auto byte = static_cast<std::size_t>(static_cast<const std::byte*>(address) - memory_->data());
  const auto behind = std::upper_bound(plan_.units.begin(), plan_.units.end(), byte,
                                       [](std::size_t at, const UnitSpec& unit) { return at < unit.begin; });
  if (behind == plan_.units.begin()) return std::nullopt;  // it stays
  return static_cast<std::size_t>(behind - plan_.units.begin()) - 1;
}

// Operators within one that reads the unit, and those that follow each other, are one use.
std::optional<std::size_t> GatheredUnits::use(const void* storage, const void* address) noexcept {
  const std::lock_guard lock(mutex_);
  if (live_.is_all || ignored_.contains(storage)) return std::nullopt;
  const auto unit = unit_at(address);
  if (!unit) return std::nullopt;
  const bool is_read = units_[*unit].readers++ > 0;
  const bool goes_on = order_.latest == unit && units_[*unit].state == State::HERE;
  if (is_read || goes_on) return unit;
  try {
    begin_use(*unit);
  } catch (const std::exception& error) {
    give_up(*unit, error);
  }
  return unit;
}

void GatheredUnits::done(std::size_t unit) {
  const std::lock_guard lock(mutex_);
  if (units_[unit].readers > 0) --units_[unit].readers;
}

void GatheredUnits::begin_use(std::size_t unit) {
  order_.latest = unit;
  const bool is_expected = follow(unit);
  if (units_[unit].state == State::GONE) {
    make_room(unit, {});
    begin_gather(unit);
  }
  if (units_[unit].state == State::COMING) finish_gather(unit);
  std::erase(live_.by_use, unit);
  live_.by_use.push_front(unit);
  if (!is_expected) return;
  try {
    prefetch();
  } catch (const std::exception& error) {
    // What is read now is here. The next read that needs the others throws.
    group_.abort(
        str(ZERO_WRAPPER.on(group_), ": a unit of parameters was not gathered ahead: ", error.what()));
  }
}

// Whether the order of the last step knows what comes next.
bool GatheredUnits::follow(std::size_t unit) {
  if (order_.pass == Pass::NONE) return false;
  if (order_.pass == Pass::TRAINING && order_.current.size() < LONGEST_STEP) order_.current.push_back(unit);
  for (std::size_t i = order_.next; i < order_.last.size(); ++i) {
    if (order_.last[i] != unit) continue;
    order_.next = i + 1;
    return true;
  }
  return false;
}

// What is needed before a unit does not go for it.
void GatheredUnits::prefetch() {
  std::size_t coming = 0;
  for (const std::size_t unit : live_.by_use)
    coming += units_[unit].state == State::COMING ? plan_.units[unit].elements : 0;
  std::vector<std::size_t> before;
  const std::size_t end = order_.pass == Pass::TRAINING ? order_.last.size() : order_.forward;
  for (std::size_t i = order_.next; i < std::min(end, order_.last.size()) && before.size() < LOOKAHEAD; ++i) {
    const std::size_t unit = order_.last[i];
    if (units_[unit].state == State::GONE) {
      const std::size_t elements = plan_.units[unit].elements;
      const bool is_too_much = coming > 0 ? coming + elements > limits_.prefetch : limits_.prefetch == 0;
      if (is_too_much || !has_room(unit, before)) return;
      make_room(unit, before);
      begin_gather(unit);
      fail_point("zero.prefetch");
      coming += elements;
    }
    before.push_back(unit);
  }
}

// ------------------------------------------------------------------------------------------------------ room

bool GatheredUnits::may_go(std::size_t unit, std::span<const std::size_t> kept) const {
  return units_[unit].readers == 0 && !contains_unit(kept, unit);
}

bool GatheredUnits::has_room(std::size_t unit, std::span<const std::size_t> kept) const {
  std::size_t elements = plan_.units[unit].elements;
  for (const std::size_t other : live_.by_use)
    elements += may_go(other, kept) ? 0 : plan_.units[other].elements;
  return elements <= limits_.live;
}

// As far as there is something that may go.
void GatheredUnits::make_room(std::size_t unit, std::span<const std::size_t> kept) {
  for (std::size_t i = live_.by_use.size(); i-- > 0;) {
    if (live_.elements + plan_.units[unit].elements <= limits_.live) return;
    if (may_go(live_.by_use[i], kept)) let_go(live_.by_use[i]);
  }
}

// ------------------------------------------------------------------------------------------------ gathering

void GatheredUnits::begin_gather(std::size_t unit) {
  const UnitSpec& spec = plan_.units[unit];
  memory_->admit(spec.begin, spec.end);
  std::vector<std::span<std::byte>> parts;
  for (const ByteRange& part : parts_) {
    const ByteRange here = common(range_of(spec), part);
    parts.emplace_back(memory_->data() + here.begin, here.end - here.begin);
  }
  const auto own = parts[static_cast<std::size_t>(group_.rank())];
  const Acting acting(
      Purpose::SHARDED_STEP, str("the unit of parameter ", in_quotes(names_[unit])),
      static_cast<std::int32_t>(GradientMeeting::Reason::UNITS) + static_cast<std::int32_t>(unit));
  units_[unit].work = comm::all_gather(group_, own.data(), own.size(), DType::UINT8, std::move(parts),
                                       /*async_op=*/true, memory_);
  units_[unit].state = State::COMING;
  live_.by_use.push_front(unit);
  live_.elements += spec.elements;
  fail_point("zero.gather");
}

void GatheredUnits::finish_gather(std::size_t unit) {
  try {
    std::exchange(units_[unit].work, Work()).wait();
  } catch (...) {
    take_out(unit);
    throw;
  }
  units_[unit].state = State::HERE;
}

void GatheredUnits::take_out(std::size_t unit) {
  units_[unit].state = State::GONE;
  if (std::erase(live_.by_use, unit) > 0) live_.elements -= plan_.units[unit].elements;
}

// Pages in which this rank's part begins or ends stay.
void GatheredUnits::let_go(std::size_t unit) {
  if (units_[unit].state == State::COMING) finish_gather(unit);
  const UnitSpec& spec = plan_.units[unit];
  const ByteRange own = common(range_of(spec), mine());
  take_out(unit);
  if (own.begin == own.end) return memory_->discard(spec.begin, spec.end);
  memory_->discard(spec.begin, own.begin / PAGE * PAGE);
  memory_->discard(round_up(own.end, PAGE), spec.end);
}

// The other ranks may wait for this one. Bits that are all ones are NaN of any floating point.
void GatheredUnits::give_up(std::size_t unit, const std::exception& error) {
  const std::string what =
      str("the unit of parameter ", in_quotes(names_[unit]), " was not gathered: ", error.what());
  if (!failure_) {
    failure_ = std::current_exception();
    log(LogLevel::WARNING, str(ZERO_WRAPPER.on(group_), ": ", what));
  }
  group_.abort(str(ZERO_WRAPPER.on(group_), ": ", what));
  const UnitSpec& spec = plan_.units[unit];
  take_out(unit);  // the next use says so again
  try {
    memory_->admit(spec.begin, spec.end);
  } catch (const std::bad_alloc&) {
    return;
  }
  const ByteRange own = common(range_of(spec), mine());
  std::memset(memory_->data() + spec.begin, 0xFF, own.begin - spec.begin);
  std::memset(memory_->data() + own.end, 0xFF, spec.end - own.end);
}

void GatheredUnits::rethrow() {
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void GatheredUnits::settle() {
  rethrow();
  const std::lock_guard lock(mutex_);
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (units_[unit].state == State::COMING) finish_gather(unit);
  }
}

// Without memory for it all this rank tells the others.
void GatheredUnits::hold_all() {
  const std::lock_guard lock(mutex_);
  try {
    for (std::size_t unit = 0; unit < units_.size(); ++unit) {
      if (units_[unit].state == State::GONE) begin_gather(unit);
      if (units_[unit].state == State::COMING) finish_gather(unit);
    }
  } catch (const std::exception& error) {
    group_.abort(str(ZERO_WRAPPER.on(group_), ": the parameters were not gathered: ", error.what()));
    throw;
  }
  live_.is_all = true;
}

void GatheredUnits::let_all_go() {
  const std::lock_guard lock(mutex_);
  live_.is_all = false;
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (units_[unit].state != State::GONE) let_go(unit);
  }
  order_.latest.reset();
}

void GatheredUnits::end_step() {
  let_all_go();
  const std::lock_guard lock(mutex_);
  if (!order_.current.empty()) order_.last = std::exchange(order_.current, {});
  order_.next = 0;
  order_.pass = Pass::NONE;
}

}  // namespace lockstep

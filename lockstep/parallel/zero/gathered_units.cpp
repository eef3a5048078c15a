#include "lockstep/parallel/zero/gathered_units.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/fail_point.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/barrier.h"
#include "lockstep/parallel/zero/gradient_meeting.h"
#include "lockstep/parallel/zero/unit_pages.h"
#include "lockstep/parallel/zero/unit_storages.h"
#include "lockstep/parallel/zero/zero_wrapper.h"

namespace lockstep {
namespace {

constexpr std::size_t DEFAULT_LIVE = 3;          // units
constexpr std::size_t LOOKAHEAD = 16;            // uses
constexpr std::size_t LONGEST_STEP = 1U << 20U;  // uses that are recorded

bool contains_unit(std::span<const std::size_t> units, std::size_t unit) {
  return std::find(units.begin(), units.end(), unit) != units.end();
}

}  // namespace

GatheredUnits::GatheredUnits(const NamedTensors& parameters, UnitPlan plan, std::vector<ByteRange> parts,
                             ProcessGroup group, std::shared_ptr<const MachineGroups> machines,
                             const UnitOptions& options, UnitPlaces where)
    : plan_(std::move(plan)),
      parts_(std::move(parts)),
      group_(std::move(group)),
      machines_(std::move(machines)),
      units_(plan_.units.size()) {
  const ByteRange& own = parts_[static_cast<std::size_t>(group_.rank())];
  if (where.units.is_cpu()) {
    const auto pages = std::make_shared<UnitPages>(plan_, parts_here(), own, machines_);
    resident_ = pages->data();
    memory_ = pages;
  } else {
    memory_ = std::make_shared<UnitStorages>(plan_, own, parameters, where);
  }
  std::size_t largest = 0;
  for (const UnitSpec& unit : plan_.units) {
    names_.push_back(parameters[unit.parameters.front()].first);
    largest = std::max(largest, unit.elements);
  }
  limits_ = {.live = options.max_live.value_or(DEFAULT_LIVE * largest),
             .prefetch = options.prefetch.value_or(largest)};
}

// Of the ranks that have this memory.
std::vector<ByteRange> GatheredUnits::parts_here() const {
  if (!machines_) return {parts_[static_cast<std::size_t>(group_.rank())]};
  std::vector<ByteRange> parts;
  for (const int rank : machines_->here()) parts.push_back(parts_[static_cast<std::size_t>(rank)]);
  return parts;
}

void GatheredUnits::abort(const std::string& text) const {
  machines_ ? machines_->abort(std::current_exception(), text) : group_.abort(text);
}

std::size_t GatheredUnits::bytes() const {
  double largest = 0;
  double width = 0;  // bytes of an element, with what pages add
  for (const UnitSpec& unit : plan_.units) {
    const auto bytes = static_cast<double>(unit.end - unit.begin);
    largest = std::max(largest, bytes);
    width = std::max(width, bytes / static_cast<double>(unit.elements));
  }
  const std::size_t all = plan_.bytes - plan_.resident_end;
  const double live = std::max(largest, width * static_cast<double>(limits_.live));
  const bool are_all_live = live >= static_cast<double>(all);
  return plan_.resident_end +
         memory_->bytes(all, are_all_live ? all : static_cast<std::size_t>(std::ceil(live)));
}

// Operators of `fill` find the unit there, and need no lock.
void GatheredUnits::fill(std::size_t unit, const std::function<void()>& fill) {
  set_held(true);
  memory_->take(unit);
  fill();
  const Acting acting(Purpose::FIRST_WEIGHTS, str("the unit of parameter ", in_quotes(names_[unit])));
  memory_->spread(unit, group_);
  set_held(false);
  const std::lock_guard lock(mutex_);
  let_go(unit);
}

void GatheredUnits::spread_all() {
  for (std::size_t unit = 0; unit < units_.size(); ++unit) memory_->spread(unit, group_);
}

void GatheredUnits::set_held(bool is_held) {
  const std::lock_guard lock(mutex_);
  live_.is_all = is_held;
}

void GatheredUnits::ignore(const void* storage) {
  const std::lock_guard lock(mutex_);
  ignored_.insert(storage);
}

bool GatheredUnits::lacks(c10::StorageImpl& storage) {
  const std::lock_guard lock(mutex_);
  return !live_.is_all && !ignored_.contains(&storage) && contains(storage);
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

// Operators within one that reads the unit, and those that follow each other, are one use.
std::optional<std::size_t> GatheredUnits::use(c10::StorageImpl& storage) noexcept {
  const std::lock_guard lock(mutex_);
  if (live_.is_all || ignored_.contains(&storage)) return std::nullopt;
  const auto unit = memory_->unit_of(storage);
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
    abort(str(ZERO_WRAPPER.on(group_), ": a unit of parameters was not gathered ahead: ", error.what()));
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
      if (is_too_much || !has_room(unit, before)) return memory_->expect(unit);
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

Acting GatheredUnits::to_gather(std::size_t unit) const {
  return Acting(Purpose::SHARDED_STEP, str("the unit of parameter ", in_quotes(names_[unit])),
                static_cast<std::int32_t>(GradientMeeting::Reason::UNITS) + static_cast<std::int32_t>(unit));
}

void GatheredUnits::begin_gather(std::size_t unit) {
  memory_->take(unit);
  std::vector<ByteRange> parts;
  const ProcessGroup& group = machines_ ? machines_->lane() : group_;
  for (int place = 0; place < group.size(); ++place) {
    const int rank = machines_ ? machines_->in_lane()[static_cast<std::size_t>(place)] : place;
    parts.push_back(common_range(plan_.units[unit], parts_[static_cast<std::size_t>(rank)]));
  }
  const Acting acting = to_gather(unit);
  if (machines_) units_[unit].comparison = comm::barrier(group_, /*async_op=*/true);
  try {
    units_[unit].work = memory_->gather(unit, group, parts);
  } catch (const Error&) {  // a rank that was told has left its lane
    if (machines_) std::exchange(units_[unit].comparison, Work()).wait();
    throw;
  }
  units_[unit].state = State::COMING;
  live_.by_use.push_front(unit);
  live_.elements += plan_.units[unit].elements;
  fail_point("zero.gather");
}

// The other ranks of the machine have brought their parts when they have come as far.
void GatheredUnits::finish_gather(std::size_t unit) {
  try {
    Work comparison = std::exchange(units_[unit].comparison, Work());
    Work work = std::exchange(units_[unit].work, Work());
    if (machines_) comparison.wait();
    work.wait();
    if (machines_) {
      const Acting acting = to_gather(unit);
      comm::barrier(machines_->machine()).wait();
    }
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

void GatheredUnits::let_go(std::size_t unit) {
  if (units_[unit].state == State::COMING) finish_gather(unit);
  take_out(unit);
  memory_->let_go(unit);
}

// The other ranks may wait for this one.
void GatheredUnits::give_up(std::size_t unit, const std::exception& error) {
  const std::string what =
      str("the unit of parameter ", in_quotes(names_[unit]), " was not gathered: ", error.what());
  if (!failure_) {
    failure_ = std::current_exception();
    log(LogLevel::WARNING, str(ZERO_WRAPPER.on(group_), ": ", what));
  }
  abort(str(ZERO_WRAPPER.on(group_), ": ", what));
  take_out(unit);  // the next use says so again
  try {
    memory_->poison(unit);
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the reader gets SIGSEGV, or c10::Error
  }
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
    abort(str(ZERO_WRAPPER.on(group_), ": the parameters were not gathered: ", error.what()));
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

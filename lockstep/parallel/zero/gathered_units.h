// GatheredUnits: parameters of which each rank keeps its part, and which are gathered unit by unit while they
// are used (ZeRO's stage 3). Pointers to them stay what they are: a unit that is gone leaves pages without
// memory.
//
//   GatheredUnits units(plan, parts, group, names);
//   std::byte* const memory = units.data();         // all of it is there; fill it, then
//   units.forget();                                 // each rank keeps its own part alone
//   units.use(storage, address);                    // before a read: gathers the unit that lies there
//   units.hold_all();                               // all are there, until forget()
//
//           begin to gather             it has come                  two others were used since
//   ┌──────┐ ─────────────▶ ┌────────┐ ─────────────▶ ┌──────┐ ─────────────────────────────▶ ┌──────┐
//   │ GONE │                │ COMING │                │ HERE │                                │ GONE │
//   └──────┘                └────────┘                └──────┘                                └──────┘
//
// Operators  OperatorWatch (operator_watch.h) tells of each operator of libtorch which addresses it is about
// to
//            read. Units that one operator uses stay until the next begins.
// Prefetch   the order in which units were used in the last step is followed: with a unit that is used the
//            next one is gathered, too. An order that differs is followed as it comes.
// Collective use() of what is not there, hold_all(): every rank in the same order. A rank that uses another
//            unit is a Mismatch.
// Fails      use() never throws, because libtorch swallows what an observer throws. It fills the unit with
//            NaN, and rethrow() throws the error.
// Threads    any; one mutex guards everything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/comm/work.h"
#include "lockstep/os/reserved_memory.h"
#include "lockstep/parallel/zero/unit_plan.h"

namespace lockstep {

// Of a memory.
struct ByteRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

class GatheredUnits {
 public:
  static constexpr std::size_t KEPT = 2;  // units that were used last

  // `parts`: of the memory, by rank; what lies outside of them is nobody's. `names`: of units, for messages.
  GatheredUnits(UnitPlan plan, std::vector<ByteRange> parts, ProcessGroup group,
                std::vector<std::string> names);
  GatheredUnits(const GatheredUnits&) = delete;
  GatheredUnits& operator=(const GatheredUnits&) = delete;
  ~GatheredUnits() = default;

  std::byte* data() const { return memory_->data(); }
  // This rank's part, and at most as many units as are there at a time: those kept and the next.
  std::size_t bytes() const;
  bool contains(const void* address) const;

  // An operator begins: what earlier ones used may go.
  void begin_operator();
  // A tensor of that storage, which begins at an address of the memory, is read. Blocks until its unit is
  // there.
  void use(const void* storage, const void* address) noexcept;
  // Tensors of this storage are of this rank's part alone.
  void ignore(const void* storage);
  // All units are gathered and stay.
  void hold_all();
  // All units go, also those that hold_all() holds, and the next step begins. Parts stay. Not collective.
  void forget();
  // Throws the first error of use() since the last call, if any.
  void rethrow();

 private:
  enum class State { GONE, COMING, HERE };
  struct Unit {
    State state = State::GONE;
    Work work;
  };
  struct Order {
    std::vector<std::size_t> last;         // of the step before
    std::vector<std::size_t> current;      // so far
    std::vector<std::size_t> in_operator;  // of the operator that runs
    std::deque<std::size_t> recent;        // units that are HERE, the last used first
  };
  const ByteRange& mine() const { return parts_[static_cast<std::size_t>(group_.rank())]; }
  void begin_gather(std::size_t unit);
  void finish_gather(std::size_t unit);
  void make_here(std::size_t unit);
  void let_go(std::size_t unit);
  void trim();
  void prefetch();

  const UnitPlan plan_;
  const std::vector<ByteRange> parts_;
  const ProcessGroup group_;
  const std::vector<std::string> names_;
  const std::shared_ptr<ReservedMemory> memory_;
  std::mutex mutex_;
  // guarded by mutex_
  std::vector<Unit> units_;
  Order order_;  // of use
  bool holds_all_ = true;
  std::unordered_set<const void*> ignored_;
  std::exception_ptr failure_;
};

}  // namespace lockstep

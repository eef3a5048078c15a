// GatheredUnits: parameters of which each rank keeps its part, and which are gathered unit by unit while they
// are used (ZeRO's stage 3). A unit that is gone leaves a place without memory (unit_memory.h).
//
//   GatheredUnits units(parameters, plan, parts, group, MachineGroups::make(group), options, {});
//   units.fill(2, [&] { ... });                     // rank 0's values; each rank keeps its part
//   const auto unit = units.use(storage);           // before a read: gathers the unit of that storage
//   if (unit) units.done(*unit);                    // after it
//   units.end_step();                               // the ranks have stepped their parts
//   units.hold_all();                               // all are there, until let_all_go()
//
//           begin to gather             it has come               others need the room
//   ┌──────┐ ─────────────▶ ┌────────┐ ─────────────▶ ┌──────┐ ────────────────────────▶ ┌──────┐
//   │ GONE │                │ COMING │                │ HERE │                           │ GONE │
//   └──────┘                └────────┘                └──────┘                           └──────┘
//
// Machines   with equally many ranks have each unit once (machine_groups.h). A rank gathers the parts of its
//            lane, and the ranks of the machine meet when a unit has come, because each of them has brought a
//            part of it. Meanwhile all ranks compare what they gather, since a lane does not see the others.
//            A unit that one rank of a machine has let go stays as long as another one reads it.
// Gone       a read past operators is a fault (SIGSEGV), but for this rank's part, those of other ranks that
//            have the same memory, and the pages in which these begin and end: there are old values beside.
//            On a GPU it is c10::Error.
// Room       max_live elements are there at a time, those that are coming included. Of the units that no
//            operator reads the one that was used longest ago goes first. What one operator reads is there
//            even if it is more.
// Prefetch   in a pass of training, from begin_forward() to end_step(), the order in which units are used is
//            recorded, and that of the last step is followed: with a unit that is used those that come next
//            are gathered, too, at most `prefetch` elements of them, or one unit, at a time, as far as there
//            is room without a unit that is needed before. A use that the order does not expect is looked for
//            further on in it. A forward of evaluation follows the order of a forward. end_forward() waits
//            for what is on its way, so that a rank that leaves then owes nothing to the others. Other reads
//            gather nothing ahead.
// Collective fill(); use() of what is not there; hold_all(); all that ends with waiting for what is coming.
//            What is gathered when depends on the order of uses alone, so ranks that use the same in the same
//            order gather the same. A rank that does not is a Mismatch that names both parameters' units.
// Fails      use() never throws, because libtorch swallows what an observer throws. It fills the unit with
//            NaN, tells the other ranks (abort), and rethrow() throws the error. A unit for which the kernel
//            has no memory stays without: the operator is a fault (SIGSEGV) then, and the log says why. On a
//            GPU the operator throws c10::Error.
// Threads    any; one mutex guards everything. Two threads that use units at a time do so in no order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/comm/purpose.h"
#include "lockstep/comm/work.h"
#include "lockstep/parallel/zero/machine_groups.h"
#include "lockstep/parallel/zero/unit_memory.h"
#include "lockstep/parallel/zero/unit_plan.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep {

class GatheredUnits {
 public:
  // `parameters`: those of the plan. `parts`: of the units, by rank; what lies outside of them is nobody's.
  // Nothing is there but what stays.
  // `machines`: null where each rank has memory of its own. Collective with them.
  GatheredUnits(const NamedTensors& parameters, UnitPlan plan, std::vector<ByteRange> parts,
                ProcessGroup group, std::shared_ptr<const MachineGroups> machines, const UnitOptions& options,
                UnitPlaces where);
  GatheredUnits(const GatheredUnits&) = delete;
  GatheredUnits& operator=(const GatheredUnits&) = delete;
  ~GatheredUnits() = default;

  const UnitPlan& plan() const { return plan_; }
  UnitMemory& memory() { return *memory_; }
  // What stays, of the host; null on a GPU.
  std::byte* resident() const { return resident_; }
  // Of the memory: what stays, the parts of the ranks that have it, and as many units as are there at a time.
  std::size_t bytes() const;
  bool contains(c10::StorageImpl& storage) const { return memory_->unit_of(storage).has_value(); }

  // `fill` writes the unit where it lies; rank 0's counts. Before its first use.
  void fill(std::size_t unit, const std::function<void()>& fill);
  // An operator reads a tensor of that storage. Blocks until its unit is there, and it stays until done() is
  // called as often. Nothing for what is always there.
  std::optional<std::size_t> use(c10::StorageImpl& storage) noexcept;
  void done(std::size_t unit);
  // Tensors of this storage are of this rank's part alone.
  void ignore(const void* storage);
  // Whether a tensor of that storage may not be read past operators.
  bool lacks(c10::StorageImpl& storage);
  // A forward of training or of evaluation. The end waits for what is coming, and throws as rethrow().
  void begin_forward(bool is_training);
  void end_forward();
  // Throws the first error of use() since the last call, if any.
  void rethrow();
  // Likewise, and waits for what is coming.
  void settle();
  // All units are gathered and stay.
  void hold_all();
  // Then: all ranks have what rank 0 has written to the units.
  void spread_all();
  // All units go; parts stay.
  void let_all_go();
  // Likewise, and the next step begins.
  void end_step();

 private:
  enum class State { GONE, COMING, HERE };
  struct Unit {
    State state = State::GONE;
    std::size_t readers = 0;  // operators
    Work work;
    Work comparison;  // of all ranks, on machines
  };
  enum class Pass { NONE, TRAINING, EVALUATION };
  struct Order {                       // of use
    std::vector<std::size_t> last;     // of the step before
    std::vector<std::size_t> current;  // so far
    std::size_t next = 0;              // of `last`: what is expected
    std::size_t began = 0;             // of `current`: where the last forward began
    std::size_t forward = 0;           // uses of the first forward of a step
    std::optional<std::size_t> latest;
    Pass pass = Pass::NONE;
  };
  struct Live {                      // not GONE
    std::deque<std::size_t> by_use;  // the last used, or begun, first
    std::size_t elements = 0;
    bool is_all = false;  // somebody holds what operators may read
  };
  struct Limits {  // elements
    std::size_t live = 0;
    std::size_t prefetch = 0;
  };
  std::vector<ByteRange> parts_here() const;
  void abort(const std::string& text) const;  // while an exception is handled
  void set_held(bool is_held);
  void begin_use(std::size_t unit);
  bool follow(std::size_t unit);
  void prefetch();
  bool has_room(std::size_t unit, std::span<const std::size_t> kept) const;
  bool may_go(std::size_t unit, std::span<const std::size_t> kept) const;
  void make_room(std::size_t unit, std::span<const std::size_t> kept);
  Acting to_gather(std::size_t unit) const;
  void begin_gather(std::size_t unit);
  void finish_gather(std::size_t unit);
  void take_out(std::size_t unit);
  void let_go(std::size_t unit);
  void give_up(std::size_t unit, const std::exception& error);

  const UnitPlan plan_;
  const std::vector<ByteRange> parts_;
  const ProcessGroup group_;
  const std::shared_ptr<const MachineGroups> machines_;
  std::vector<std::string> names_;  // of the units' first parameters, for messages
  std::shared_ptr<UnitMemory> memory_;
  std::byte* resident_ = nullptr;
  Limits limits_;
  std::mutex mutex_;
  // guarded by mutex_
  std::vector<Unit> units_;
  Order order_;
  Live live_;
  std::unordered_set<const void*> ignored_;
  std::exception_ptr failure_;
};

}  // namespace lockstep

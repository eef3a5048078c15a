// UnitPages: the memory of gathered parameters (unit_plan.h), of one rank or of the ranks of a machine
// together. Pages of a unit come when a rank takes it, and go when the last rank that has it lets it go.
//
//   UnitPages pages(plan, {part});                       // this rank's own
//   UnitPages pages(plan, parts_of_machine, &machine);   // collective: of the ranks of that group
//   pages.take(2);                                       // now this rank may write to unit 2, and read it
//   pages.let_go(2);                                     // as often as it was taken
//
// Kept      bytes whose pages are never let go: the parts of the ranks that have this memory. Without them a
//           unit that is not there is a fault (SIGSEGV) for whoever reads it.
// Together  each rank holds a unit as often as it has taken it. A lock of the C library that survives the
//           death of its holder guards the counts.
// Poison    NaN of any floating point, in all of the unit but this rank's own part: those of other ranks may
//           be half written. These ranks go on to see what they see, because this rank gets pages of its own
//           there, and the unit stays so for it.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/os/reserved_memory.h"
#include "lockstep/parallel/zero/unit_plan.h"

namespace lockstep {

class UnitPages {
 public:
  // `kept` is ascending. The plan outlives this object. What stays is admitted.
  UnitPages(const UnitPlan& plan, std::vector<ByteRange> kept, const ProcessGroup* machine = nullptr);
  UnitPages(const UnitPages&) = delete;
  UnitPages& operator=(const UnitPages&) = delete;
  ~UnitPages();

  std::byte* data() const { return memory_->data() + front_; }
  bool contains(const void* address) const;
  std::size_t kept_bytes() const;

  void take(std::size_t unit);  // std::bad_alloc: the kernel has no memory for it
  void let_go(std::size_t unit);
  void poison(std::size_t unit, std::span<std::byte> own);

 private:
  struct Holders;  // what the ranks of a machine have in common
  class Lock;
  using Gap = std::function<void(std::size_t begin, std::size_t end)>;
  void each_gap(std::size_t unit, const Gap& call) const;

  const UnitPlan& plan_;
  const std::vector<ByteRange> kept_;
  std::size_t front_ = 0;  // bytes before the units
  std::unique_ptr<ReservedMemory> memory_;
  Holders* holders_ = nullptr;  // null: this rank's own memory
};

}  // namespace lockstep

// UnitPages: the memory of gathered parameters on the host (unit_memory.h), of one rank or of the ranks of a
// machine together. Pages of a unit come when a rank takes it, and go when the last rank that has it lets it
// go. What always stays lies before the units.
//
//   const auto own = std::make_shared<UnitPages>(plan, std::vector{part}, part, nullptr);
//   const auto together = std::make_shared<UnitPages>(plan, parts_of_machine, part, machines);  // collective
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
#include <vector>

#include "lockstep/os/reserved_memory.h"
#include "lockstep/parallel/zero/machine_groups.h"
#include "lockstep/parallel/zero/unit_memory.h"

namespace lockstep {

class UnitPages : public UnitMemory, public std::enable_shared_from_this<UnitPages> {
 public:
  // `kept`: of the ranks that have this memory, ascending; `own`: this rank's. The plan outlives this object.
  // What stays is admitted.
  UnitPages(const UnitPlan& plan, std::vector<ByteRange> kept, const ByteRange& own,
            std::shared_ptr<const MachineGroups> machines);
  ~UnitPages() override;

  std::byte* data() const { return memory_->data() + front_; }

  std::optional<std::size_t> unit_of(c10::StorageImpl& storage) const override;
  std::size_t bytes(std::size_t all, std::size_t live) const override;
  at::Tensor place(std::size_t parameter, const at::Tensor& like, std::shared_ptr<void> owner) override;
  std::byte* part_at(std::size_t byte) override { return data() + byte; }
  bool is_part_on_host() const override { return true; }
  void take(std::size_t unit) override;  // std::bad_alloc: the kernel has no memory for it
  void let_go(std::size_t unit) override;
  void poison(std::size_t unit) override;
  Work gather(std::size_t unit, const ProcessGroup& group, const std::vector<ByteRange>& parts) override;
  void spread(std::size_t unit, const ProcessGroup& group) override;

 private:
  struct Holders;  // what the ranks of a machine have in common
  class Lock;
  using Gap = std::function<void(std::size_t begin, std::size_t end)>;
  void each_gap(std::size_t unit, const Gap& call) const;

  const UnitPlan& plan_;
  const std::vector<ByteRange> kept_;
  const ByteRange own_;
  const std::shared_ptr<const MachineGroups> machines_;  // null: this rank's own memory
  std::size_t front_ = 0;                                // bytes before the units
  std::unique_ptr<ReservedMemory> memory_;
  Holders* holders_ = nullptr;  // on machines
};

}  // namespace lockstep

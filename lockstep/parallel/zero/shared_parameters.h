// SharedParameters: the trained parameters of a model, moved into one piece of memory, in which each rank
// steps its part.
//
//   SharedParameters memory(trained, group, plan);           // collective; all ranks have rank 0's values
//   memory.my_shard(3);                                      // the part of parameter 3 that this rank steps
//   memory.collect();                                        // after all ranks have written their parts
//   if (const auto change = memory.change()) ...             // somebody replaced or wrote to a parameter
//
//   ONE     copy for all ranks, where they have memory in common: what a rank writes, all others read
//   MACHINE one copy for the ranks of each of several machines (machine_groups.h): collect() gathers the
//           parts of the other machines into it
//   OWN     copy of each rank elsewhere, as in the memory of its GPU: collect() gathers the parts of all
//   PARTS   each rank has its part, and what operators read is gathered before they run (gathered_units.h),
//           on machines as for MACHINE once for the ranks of each. Small parameters stay (unit_plan.h).
//           collect() gathers those, and lets the others go
//
// Failures A rank that finds its group failed before a step asks whether others may have begun to write. Each
//          rank leaves a mark in the memory before it meets the others, and none gets past the meeting
//          without all marks; a group that has failed lets no rank begin to meet. Of several machines the
//          ranks of each meet once more by themselves, with these marks: who has not got past the first
//          meeting does not come to the second.
//
// A parameter stays the tensor it is, with another memory behind it (set_data): its hooks and handles go on.
// It is contiguous from then on. A view of it that somebody took before keeps the old memory.
//
// Writes   in place by the program are made once per rank on the one copy, so they are refused by version
//          counters; write() is the way to make them.
// Lifetime the parameters hold the memory, also when this object has gone. The one copy is no longer kept
//          equal then, and it goes with the last rank that holds it.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/zero/machine_groups.h"
#include "lockstep/parallel/zero/master_weights.h"
#include "lockstep/parallel/zero/shard_plan.h"
#include "lockstep/parallel/zero/unit_plan.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep {

class GatheredUnits;
struct UnitPlaces;

// What lies in files instead of memory, so that a model may be larger than the machine's memory; or in the
// host's memory instead of a GPU's.
struct OffloadOptions {
  // On a fast disk, the same for the ranks of a machine. Of a model on a GPU it may be empty: the host's
  // memory.
  std::string folder = {};
  // The parameters, beside the optimiser's state and the masters. Of a model on a GPU in stage 3 alone.
  bool parameters = false;
};

struct SharedParametersOptions {
  bool master_weights = false;
  std::optional<OffloadOptions> offload = {};
  at::Device device = at::kCPU;  // where the parameters go
};

class SharedParameters {
 public:
  enum class Copies { ONE, MACHINE, OWN, PARTS };

  // `units`: where ranks without memory in common keep their parts alone. Parameters in a file are whole
  // there, for each rank.
  SharedParameters(NamedTensors parameters, ProcessGroup group, const ShardPlan& plan,
                   const SharedParametersOptions& options, const std::optional<UnitOptions>& units);

  Copies copies() const { return copies_; }
  // In the memory of this rank's GPU: the host cannot read them.
  bool are_on_device() const { return on_device_.defined(); }
  // How many ranks have a copy in common.
  int sharers() const;
  // Of one copy; of PARTS what a rank has of it at a time.
  std::size_t bytes() const;
  const NamedTensors& parameters() const { return parameters_; }
  // What this rank steps, a leaf of one dimension: the master of its part, else its part of the memory
  // itself; of no elements where it has none.
  const at::Tensor& my_shard(std::size_t parameter) const {
    return masters_.has(parameter) ? masters_.of(parameter) : shards_[parameter];
  }
  // The part of the memory itself, also if it has a master.
  const at::Tensor& my_part(std::size_t parameter) const { return shards_[parameter]; }
  const MasterWeights& masters() const { return masters_; }
  const optim::StateMemory& state_memory() const { return masters_.memory(); }  // for the optimiser
  std::size_t my_offset(std::size_t parameter) const { return places_[parameter].offset; }
  // This rank has its part alone, until an operator reads it.
  bool is_parted(std::size_t parameter) const;

  // All ranks have written their parts before. Collective without the one copy; then it blocks until all
  // parts are here of what a rank has whole. The parameters count as written to.
  void collect();
  // A forward of training or of evaluation. The end throws as settle().
  void begin_forward(bool is_training) const;
  void end_forward() const;
  // Before write(): all have whole parameters, until they are written. Collective with parts.
  void hold() const;
  // Rank 0 calls `write`, and all ranks have what it wrote. Nobody reads the old values any more. Collective,
  // blocks until then.
  void write(const std::function<void()>& write);
  // All ranks call `read`, while the whole parameters are there. Collective with parts.
  void read(const std::function<void()>& read);
  // Throws what went wrong when an operator's parameters were gathered, which the operator could not throw.
  void rethrow() const;
  // Likewise, and waits for what is on its way.
  void settle() const;
  // All ranks meet for step `number`, by `meeting`, after which they write.
  void meet(std::uint64_t number, const std::function<void()>& meeting);
  // After a failure of meet(): no rank has written to this rank's copy, or will.
  bool is_untouched(std::uint64_t number) const;
  // A step fails on this rank by the exception that is being handled: ranks that wait for it in the groups of
  // this object are told.
  void abandon() const;
  // What a GPU reads from this rank's parts on the host has been read.
  void wait_for_copies() const;
  // All ranks have written the same values, or their parts of what is parted: what the parameters are now
  // counts. Not collective.
  void mark_written();
  // Which parameter is not what it was after the last of these calls, as a sentence.
  std::optional<std::string> change() const;

 private:
  struct Place {
    std::size_t begin = 0;  // byte of the memory
    std::int64_t version = 0;
    std::size_t offset = 0;  // of this rank's part, in elements
    std::size_t count = 0;
  };
  struct Ranges {  // by rank: what it steps
    std::vector<ByteRange> whole;
    std::vector<ByteRange> parted;
  };
  std::atomic<std::uint64_t>& mark_of(int rank) const;
  void mark(std::uint64_t number);
  void spread(std::size_t end);
  std::byte* at(std::size_t byte) const { return static_cast<std::byte*>(memory_.get()) + byte; }
  void lay_out();
  Ranges find_parts(const ShardPlan& plan, std::size_t whole_end);
  void reserve(const ShardPlan& plan, const std::optional<OffloadOptions>& offload,
               const std::optional<UnitOptions>& units);
  void reserve_units(const ShardPlan& plan, const UnitOptions& options, UnitPlaces where);
  void reserve_on_device(const ShardPlan& plan);
  at::Tensor zeros_on_device(std::size_t bytes) const;
  void gather(const ProcessGroup& group, const std::vector<int>& ranks) const;
  void move_in(std::size_t parameter);
  void fill();
  void make_shards();
  void count_versions();
  bool is_in_place(std::size_t parameter) const;

  const NamedTensors parameters_;
  const ProcessGroup group_;
  const at::Device device_;
  std::shared_ptr<const MachineGroups> machines_;  // of MACHINE, and of PARTS on machines like those
  Copies copies_ = Copies::ONE;
  std::size_t bytes_ = 0;
  std::shared_ptr<void> memory_;
  at::Tensor on_device_;            // the memory as bytes, where it is a GPU's; of PARTS what stays
  GatheredUnits* units_ = nullptr;  // of PARTS; the memory holds them
  std::vector<Place> places_;       // by parameter
  std::vector<at::Tensor> shards_;  // by parameter: this rank's part of the memory
  MasterWeights masters_;           // of the shards, if wanted
  std::vector<ByteRange> ranges_;   // by rank: what it steps of what all have whole
};

}  // namespace lockstep

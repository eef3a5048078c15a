// UnitMemory: where gathered parameters lie (gathered_units.h), and how a unit of them comes and goes.
//
//   UnitPages     of the host, at addresses that stay: the pages of a unit come and go
//   UnitStorages  of a GPU: a unit is a block of its own while it is there, to which the storages of its
//                 parameters point
//
//   memory.take(2);                                          // this rank may write to unit 2 now
//   memory.gather(2, lane, parts).wait();                    // all ranks' parts have come
//   memory.let_go(2);                                        // as often as it was taken
//
// Bytes     of the plan (unit_plan.h) name places, whatever their addresses are.
// Threads   unit_of() any; the rest one at a time.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/comm/work.h"
#include "lockstep/os/file_memory.h"
#include "lockstep/parallel/zero/unit_plan.h"

namespace lockstep {

// Of a rank.
struct UnitPlaces {
  at::Device units = at::kCPU;
  at::Device part = at::kCPU;  // what it steps of them
  // In which the part of units on a GPU lies; null: in pinned memory, where the part is on the host.
  std::shared_ptr<FileMemory> file = {};
};

class UnitMemory {
 public:
  UnitMemory() = default;
  UnitMemory(const UnitMemory&) = delete;
  UnitMemory& operator=(const UnitMemory&) = delete;
  virtual ~UnitMemory() = default;

  // In which unit tensors of that storage lie; nothing for other memory, and for what always stays.
  virtual std::optional<std::size_t> unit_of(c10::StorageImpl& storage) const = 0;
  // Of this rank, for units of `all` bytes of which `live` are there at a time.
  virtual std::size_t bytes(std::size_t all, std::size_t live) const = 0;

  // A tensor like a gathered parameter, in its place; of its unit, which is taken. It holds `owner`. Once for
  // each parameter.
  virtual at::Tensor place(std::size_t parameter, const at::Tensor& like, std::shared_ptr<void> owner) = 0;
  // Where that byte of this rank's part is kept, on the host or where the parameters are.
  virtual std::byte* part_at(std::size_t byte) = 0;
  virtual bool is_part_on_host() const = 0;

  virtual void take(std::size_t unit) = 0;  // throws where there is no memory for it
  virtual void let_go(std::size_t unit) = 0;
  // All of the unit is NaN for this rank, but its own part. Throws as take().
  virtual void poison(std::size_t unit) = 0;
  // That unit will be gathered soon: what is on a disk of this rank's part begins to be read. Returns at
  // once.
  virtual void expect(std::size_t /*unit*/) {}
  // Of a unit that is taken: the parts of the ranks of `group`, by rank, come from each of them.
  virtual Work gather(std::size_t unit, const ProcessGroup& group, const std::vector<ByteRange>& parts) = 0;
  // Of a unit that is taken: all ranks have what rank 0 has written there.
  virtual void spread(std::size_t unit, const ProcessGroup& group) = 0;
};

// A tensor over this memory that holds it. Each has a storage of its own: saving one saves its bytes alone.
at::Tensor tensor_over(const std::shared_ptr<void>& memory, std::byte* data, at::IntArrayRef sizes,
                       const at::TensorOptions& options);

}  // namespace lockstep

// UnitStorages: the memory of gathered parameters on a GPU (unit_memory.h). A unit that is there is a block
// of the device's allocator; a unit that is gone has none, and the storages of its parameters point nowhere.
//
//   UnitStorages memory(plan, parts[rank], parameters, {.units = gpu, .part = at::kCPU});
//   net->weight.set_data(memory.place(3, net->weight, owner));
//
// Views     of a parameter have its storage, so they come and go with it, also those that autograd has saved.
// Gone      whoever asks for the memory of such a parameter gets c10::Error ("this parameter is not gathered
//           now"), also an operator.
// Streams   of a block: the one that is current when it is taken. A kernel of it that reads the block runs
//           before one that gets its memory later. Another stream's may not, so operators that read
//           parameters run on one stream.
// Parts     this rank's lies by itself, on the device, in pinned memory of the host or in a file, and is
//           copied into the block that is gathered. From a file it is read while the unit before is gathered.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <unordered_map>

#include "lockstep/parallel/zero/unit_memory.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep {

class UnitStorages : public UnitMemory {
 public:
  // `own`: what this rank steps of the units. The plan outlives this object. `parameters`: those of the plan.
  UnitStorages(const UnitPlan& plan, const ByteRange& own, const NamedTensors& parameters, UnitPlaces where);

  std::optional<std::size_t> unit_of(c10::StorageImpl& storage) const override;
  std::size_t bytes(std::size_t all, std::size_t live) const override;
  at::Tensor place(std::size_t parameter, const at::Tensor& like, std::shared_ptr<void> owner) override;
  std::byte* part_at(std::size_t byte) override;
  bool is_part_on_host() const override { return part_.is_cpu(); }
  void take(std::size_t unit) override;
  void let_go(std::size_t unit) override;
  void poison(std::size_t unit) override;
  void expect(std::size_t unit) override;
  Work gather(std::size_t unit, const ProcessGroup& group, const std::vector<ByteRange>& parts) override;
  void spread(std::size_t unit, const ProcessGroup& group) override;

 private:
  using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

  at::Tensor in_block(std::size_t unit, const ByteRange& range) const;
  at::Tensor in_part(const ByteRange& range) const;
  void point(std::size_t unit) const;

  const UnitPlan& plan_;
  const ByteRange own_;
  const at::Device device_;
  const std::shared_ptr<FileMemory> file_;                      // of the part; null: in memory
  const std::size_t front_;                                     // bytes before this rank's part, to align it
  at::Tensor part_;                                             // bytes
  std::vector<at::Tensor> blocks_;                              // by unit: bytes
  std::vector<WeakStorage> storages_;                           // by parameter: the tensors hold them
  std::vector<c10::intrusive_ptr<c10::StorageImpl>> unplaced_;  // by parameter, until place()
  std::unordered_map<const void*, std::size_t> units_;  // by storage, whose address a weak pointer keeps
};

}  // namespace lockstep

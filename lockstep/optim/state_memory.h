// StateMemory: where an optimiser keeps what it knows of each parameter: in memory, or in a file through
// which a step goes in order (os/file_memory.h).
//
//   StateMemory memory(std::make_shared<FileMemory>("/nvme/scratch"));
//   state.exp_avg(memory.zeros_like(parameter));
//   for_chunks(calls, work, memory.file());
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>

#include "lockstep/os/file_memory.h"

namespace lockstep::optim {

class StateMemory {
 public:
  StateMemory() = default;  // libtorch's allocator
  explicit StateMemory(std::shared_ptr<FileMemory> file) : file_(std::move(file)) {}

  // Dtype, shape and strides are those of at::zeros_like(). A tensor holds the file.
  at::Tensor zeros_like(const at::Tensor& tensor) const;
  FileMemory* file() const { return file_.get(); }  // null: in memory
  const std::shared_ptr<FileMemory>& holder() const { return file_; }

 private:
  std::shared_ptr<FileMemory> file_;
};

}  // namespace lockstep::optim

// PartedMemory: memory of tensors of which this process has a part alone, unless an operator of libtorch
// reads them. Code that reads the bytes of a tensor past operators asks first, and refuses by name what is
// not there.
//
//   const PartedMemory parted([&](const at::Tensor& tensor) { return !has_all_of(tensor); });
//   refuse_parted("save_state_dict", "fc.weight", tensor);      // throws unless it is there
//
// Threads  any.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <string_view>

namespace lockstep {

class PartedMemory {
 public:
  // `lacks`: of a tensor with a storage.
  explicit PartedMemory(std::function<bool(const at::Tensor&)> lacks);
  PartedMemory(const PartedMemory&) = delete;
  PartedMemory& operator=(const PartedMemory&) = delete;
  ~PartedMemory();

  bool lacks(const at::Tensor& tensor) const { return lacks_(tensor); }

 private:
  const std::function<bool(const at::Tensor&)> lacks_;
};

// Throws InvalidArgument for a tensor that some PartedMemory lacks.
void refuse_parted(std::string_view who, const std::string& name, const at::Tensor& tensor);

}  // namespace lockstep

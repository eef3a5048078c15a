// PartedMemory: memory of tensors of which this process has a part alone, unless an operator of libtorch
// reads them. Code that reads the bytes of a tensor past operators asks first, and refuses by name what is
// not there.
//
//   const PartedMemory parted(begin, bytes, [&](const at::Tensor& tensor) { return has_all_of(tensor); });
//   refuse_parted("save_state_dict", "fc.weight", tensor);      // throws unless it is there
//
// Threads  any.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace lockstep {

class PartedMemory {
 public:
  // `is_there`: of a tensor whose storage begins in the memory.
  PartedMemory(const void* begin, std::size_t bytes, std::function<bool(const at::Tensor&)> is_there);
  PartedMemory(const PartedMemory&) = delete;
  PartedMemory& operator=(const PartedMemory&) = delete;
  ~PartedMemory();

  bool lacks(const at::Tensor& tensor) const;

 private:
  const std::byte* const begin_;
  const std::size_t bytes_;
  const std::function<bool(const at::Tensor&)> is_there_;
};

// Throws InvalidArgument for a tensor that some PartedMemory lacks.
void refuse_parted(std::string_view who, const std::string& name, const at::Tensor& tensor);

}  // namespace lockstep

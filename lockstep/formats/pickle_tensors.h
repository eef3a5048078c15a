// Makes named tensors and scalars of the pickle that torch.save writes. Nested dicts, lists and tuples become
// dotted names.
//
//   const PickledState state = pickled_state(pickle_bytes);
//   state.tensors[0].name;                           // "optimizer.state.0.exp_avg"
//
// Tensors refer to storages, whose bytes are not known here. The functions check that each tensor lies within
// its storage.
//
// Fails       FormatError without a file name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/base/visibility.h"
#include "lockstep/formats/pickle.h"

namespace LOCKSTEP_PUBLIC lockstep {

struct PtTensor {
  std::string name;   // empty: the file is one tensor
  std::string dtype;  // in the words of safetensors, and "C128" and others (formats/tensor_dtypes.h)
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;  // in elements
  std::size_t storage = 0;            // number of its storage
  std::uint64_t offset = 0;           // of its first element in the storage, in elements
  bool conjugate = false;             // its values are those of the storage conjugated
  bool negative = false;              // ... negated
};

using PtScalar = std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string>;

struct PickledStorage {
  std::string key;  // its record is data/KEY
  std::uint64_t size = 0;
};

struct PickledState {
  std::vector<PtTensor> tensors;
  std::vector<std::pair<std::string, PtScalar>> scalars;  // monostate: None
  std::vector<PickledStorage> storages;
};

PickledState pickled_state(std::span<const std::byte> pickle);

// Bytes of the tensor's values row by row.
std::uint64_t size_of(const PtTensor& tensor);

}  // namespace lockstep

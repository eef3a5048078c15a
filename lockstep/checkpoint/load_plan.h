// What a state wants from a checkpoint, compared with what is there. Pure.
//
//   const std::vector<std::string> problems = problems_of(wants, index, /*strict=*/true);
//
// One sentence a problem: items and tensors that are missing (with the nearest name) or left over, shapes
// and dtypes that differ.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lockstep/formats/checkpoint_index.h"

namespace lockstep {

struct WantedTensor {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;  // of the whole tensor
};

struct WantedItem {
  std::string name;
  bool in_place = false;              // it has just these tensors; else it takes what is there
  std::vector<WantedTensor> tensors;  // in place
  bool has_value = false;
  bool has_rank_value = false;
};

std::vector<std::string> problems_of(const std::vector<WantedItem>& items, const CheckpointIndex& index,
                                     bool strict);

}  // namespace lockstep

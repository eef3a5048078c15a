// Compares the tensors that a state wants from a checkpoint with those in it. Pure.
//
//   const std::vector<std::string> problems = problems_of(wants, index, /*strict=*/true);
//
// Returns one sentence a problem: items and tensors that are missing (with the nearest name) or superfluous,
// shapes and dtypes that differ.
#pragma once

#include <map>
#include <set>
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
  // it has exactly these tensors; otherwise it takes those in the checkpoint
  bool in_place = false;
  std::vector<WantedTensor> tensors;  // those to be filled in place
  std::set<std::string> of_others;    // tensors that other ranks fill
  bool has_value = false;
  bool has_rank_value = false;
};

std::vector<std::string> problems_of(const std::vector<WantedItem>& items, const CheckpointIndex& index,
                                     bool strict);

}  // namespace lockstep

// The texts of `lockstep ckpt`. Pure, except that differences_between() reads the tensors that it compares.
#pragma once

#include <string>
#include <vector>

#include "lockstep/formats/checkpoint_index.h"
#include "lockstep/formats/checkpoint_reader.h"

namespace lockstep::cli {

// "step 1200, 2 ranks, 14 tensors, 1.60 MB": one line.
std::string summary_text(const CheckpointIndex& index);
// Lists the items with their tensors and values.
std::string contents_text(const CheckpointIndex& index);

// Returns one line for each item, tensor or value that differs. For a tensor, the line says how many elements
// differ.
std::vector<std::string> differences_between(CheckpointReader& one, CheckpointReader& other);

}  // namespace lockstep::cli

// What `lockstep ckpt` says about checkpoints. Pure, but for reading the tensors that differences_between()
// compares.
#pragma once

#include <string>
#include <vector>

#include "lockstep/formats/checkpoint_index.h"
#include "lockstep/formats/checkpoint_reader.h"

namespace lockstep::cli {

// "step 1200, 2 ranks, 14 tensors, 1.6 MB": one line.
std::string summary_text(const CheckpointIndex& index);
// The items with their tensors and values.
std::string contents_text(const CheckpointIndex& index);

// One line for each item, tensor or value that differs. Of tensors with other bytes, how many elements
// differ.
std::vector<std::string> differences_between(CheckpointReader& one, CheckpointReader& other);

}  // namespace lockstep::cli

// PieceReader: fills tensors from the pieces of a checkpoint.
//
//   PieceReader reader("/runs/7/step-000000001200", index);
//   reader.fill(weight, "model.fc.weight", box_of({10, 84}));              // whole
//   const at::Tensor exp_avg = reader.make("optimizer.state.0.exp_avg");
//
// A piece that lies whole in the wanted box, contiguous in memory, is read straight into the tensor. Of other
// pieces the common part is copied. Values are converted to the tensor's dtype and device.
//
// Throws SystemError and FormatError that name the file.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "lockstep/checkpoint/save_plan.h"
#include "lockstep/formats/checkpoint_index.h"
#include "lockstep/os/plain_file.h"

namespace lockstep {

class PieceReader {
 public:
  PieceReader(std::string checkpoint, const CheckpointIndex& index);

  // `target` is the part `box` of the tensor.
  void fill(const at::Tensor& target, const std::string& name, const Box& box);
  at::Tensor make(const std::string& name);  // a new one on the CPU

 private:
  void read(const CheckpointPiece& piece, const at::Tensor& contiguous);

  const std::string checkpoint_;
  const CheckpointIndex& index_;
  std::vector<std::unique_ptr<PlainFile>> files_;
};

}  // namespace lockstep

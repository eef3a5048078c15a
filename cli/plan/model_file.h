// How many parameters a model in safetensors files has. The tensors' bytes are not read.
//
//   const ModelSize size = read_model_size("gpt2/model.safetensors");
//   size.parameters;       // 124439808
//   size.largest_layer;    // "wte", of 38597376
//
// A path that ends in .json is the index of a model in several files, as Hugging Face writes it. Its files
// lie beside it. Where none of them does, as when the index alone was downloaded, the number is the index's
// own "total_parameters", and no layer is known.
//
// Parameters are the tensors of floating-point numbers: also buffers of a floating type, which no file tells
// from parameters. A layer is what shares a name up to the last dot, as "h.0.mlp.c_fc" with weight and bias.
//
// Throws      FormatError, SystemError as SafetensorsFile and read_safetensors_index() do; FormatError for a
//             model without parameters.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "lockstep/formats/safetensors.h"

namespace lockstep::cli {

struct ModelSize {
  std::uint64_t parameters = 0;
  std::uint64_t largest = 0;  // parameters of the largest layer; 0: no layer is known
  std::string largest_layer;
};

// Pure.
ModelSize size_of_model(std::span<const SafetensorsTensor> tensors);

ModelSize read_model_size(const std::string& path);

}  // namespace lockstep::cli

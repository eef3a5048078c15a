// Counts the parameters of a model in safetensors files. The tensors' bytes are not read.
//
//   const ModelSize size = read_model_size("gpt2/model.safetensors");
//   size.parameters;       // 124439808
//   size.largest_layer;    // "wte", of 38597376
//
// A path that ends in .json is the index of a model in several files, as Hugging Face writes it. Its files
// lie beside it. If none of them does, because only the index was downloaded, the number is the index's own
// "total_parameters", and no layer is known.
//
// Parameters are the tensors of floating-point numbers. These include buffers of a floating type, because no
// file distinguishes them. A layer consists of the tensors with one name up to the last dot, as
// "h.0.mlp.c_fc" with weight and bias.
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

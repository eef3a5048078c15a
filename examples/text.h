// A text as tokens: its bytes.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/types.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/dataset.h"

inline at::Tensor bytes_as_tokens(const std::string& text) {
  return torch::tensor(at::ArrayRef(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()))
      .to(at::kLong);
}

// Windows of a text, one behind the other; the target is the same places, one byte later. The counterpart of
// lockstep::TokenDataset, which reads files of tokens.
struct Text {
  Text(const std::string& path, std::int64_t block_size) : block(block_size) {
    std::ifstream file(path, std::ios::binary);
    tokens = bytes_as_tokens({std::istreambuf_iterator<char>(file), {}});
    if (size() < 1) throw lockstep::InvalidArgument(path + " is shorter than a block");
  }
  std::int64_t size() const { return (tokens.size(0) - 1) / block; }
  lockstep::Batch get_batch(std::span<const std::int64_t> indices) const {
    const at::Tensor starts =
        torch::tensor(std::vector<std::int64_t>(indices.begin(), indices.end())) * block;
    const at::Tensor places = starts.unsqueeze(1) + torch::arange(block);
    return {tokens.index({places}), tokens.index({places + 1})};
  }

  at::Tensor tokens;
  std::int64_t block;
};

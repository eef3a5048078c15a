// TokenDataset: windows of a file of tokens, for language models. The file is mapped, not read. So it may be
// larger than memory, and the processes of a machine share the pages that they use.
//
//   // uint16, one window after the other
//   TokenDataset train("data/train.bin", {.block_size = 1024, .vocab_size = 50257});
//   TokenDataset random("data/train.bin", {.block_size = 1024, .random = true});  // others in each epoch
//   DistributedSampler sampler(train.size());
//   auto loader = make_data_loader(train, sampler, {.batch_size = 8});
//   for (auto& batch : loader) step(batch.data, batch.target);
//   // batch.data: int64 [8, 1024]; batch.target: the same places, one token later
//
// Files       Raw tokens of 2 or 4 bytes, little-endian, as nanoGPT's prepare.py writes them. Or files with
//             the header of llm.c: 256 int32, of which the first are 20240520, 1 and the number of tokens
//             (uint16), or 20240801, 7 and the number (uint32).
// Windows     There are size() of them, (tokens - 1) / block_size. Window i starts at token i * block_size.
//             With `random`, (seed, epoch, i) decide its start, with the same probability for each of the
//             tokens - block_size places. This is nanoGPT's get_batch, but the same with any number of ranks
//             and loader threads.
// Fails       SystemError: the file is missing or was cut since it was opened (the next get_batch notices).
//             FormatError, naming the file: the bytes are not a whole number of tokens, there are fewer
//             tokens than one window needs, or the header has another version, element type or number of
//             tokens. FormatError from get_batch: a token is not below vocab_size, with its place.
//             InvalidArgument: options out of range, an index outside of the set.
// Memory      Address space only; copies share the mapping.
#pragma once

#include <c10/core/ScalarType.h>

#include <memory>
#include <string>

#include "lockstep/data/dataset.h"

namespace lockstep {

class MappedFile;

struct TokenDatasetOptions {
  std::int64_t block_size = 1024;
  at::ScalarType dtype = at::kUInt16;  // type of the file's tokens: kUInt16 or kUInt32
  std::int64_t vocab_size = 0;         // every token must be below it; 0: not checked
  bool random = false;
  std::uint64_t seed = 0;  // seed of the random places; the same on every rank
};

class TokenDataset {
 public:
  explicit TokenDataset(const std::string& path, const TokenDatasetOptions& options = {});

  std::int64_t size() const { return (tokens_ - 1) / options_.block_size; }
  std::int64_t tokens() const { return tokens_; }
  const TokenDatasetOptions& options() const { return options_; }

  Batch get_batch(std::span<const std::int64_t> indices, std::int64_t epoch) const;

 private:
  void copy_window(std::int64_t start, std::int64_t* data, std::int64_t* target) const;

  TokenDatasetOptions options_;
  std::shared_ptr<const MappedFile> file_;
  std::size_t offset_ = 0;  // offset of the first token, in bytes
  std::int64_t tokens_ = 0;
};

}  // namespace lockstep

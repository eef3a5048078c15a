#include "lockstep/data/token_dataset.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/data/sample_random.h"
#include "lockstep/os/mapped_file.h"

namespace lockstep {
namespace {

constexpr std::size_t HEADER_BYTES = 256 * sizeof(std::int32_t);

// The first numbers of the headers of llm.c.
struct HeaderKind {
  std::int32_t magic;
  std::int32_t version;
  at::ScalarType dtype;
};
constexpr std::array<HeaderKind, 2> HEADER_KINDS = {{{20240520, 1, at::kUInt16}, {20240801, 7, at::kUInt32}}};

void check_options(const TokenDatasetOptions& options) {
  constexpr std::int64_t MOST = std::int64_t{1} << 32;
  if (options.dtype != at::kUInt16 && options.dtype != at::kUInt32)
    throw InvalidArgument(
        lockstep::str("TokenDataset: dtype is ", options.dtype, ", expected UInt16 or UInt32"));
  if (options.block_size < 1 || options.block_size > MOST)
    throw InvalidArgument(
        lockstep::str("TokenDataset: block_size is ", options.block_size, ", expected 1 to ", MOST));
  if (options.vocab_size < 0 || options.vocab_size > MOST)
    throw InvalidArgument(
        lockstep::str("TokenDataset: vocab_size is ", options.vocab_size, ", expected 0 to ", MOST));
}

[[noreturn]] void refuse_tokens(const MappedFile& file, const std::string& defect) {
  throw FormatError(lockstep::str("token file \"", printable(file.path()), "\": ", defect));
}

std::size_t size_of(at::ScalarType dtype) { return dtype == at::kUInt16 ? 2 : 4; }

// Returns the number of bytes before the first token.
std::size_t header_bytes(const MappedFile& file, at::ScalarType dtype) {
  std::array<std::int32_t, 3> head{};
  if (file.bytes().size() < HEADER_BYTES) return 0;
  std::memcpy(head.data(), file.bytes().data(), sizeof head);
  for (const HeaderKind& kind : HEADER_KINDS) {
    if (head[0] != kind.magic) continue;
    if (head[1] != kind.version)
      refuse_tokens(
          file, lockstep::str("its header, of llm.c, is of version ", head[1], ", expected ", kind.version));
    if (dtype != kind.dtype)
      refuse_tokens(
          file, lockstep::str("its header, of llm.c, says ", kind.dtype, ", and the option dtype ", dtype));
    const std::size_t tokens = (file.bytes().size() - HEADER_BYTES) / size_of(dtype);
    if (head[2] < 0 || static_cast<std::size_t>(head[2]) != tokens)
      refuse_tokens(file,
                    lockstep::str("its header, of llm.c, says ", head[2], " tokens, and it holds ", tokens));
    return HEADER_BYTES;
  }
  return 0;
}

// Copies `count` tokens and returns the first that is not below `limit`, or `count`.
template <typename Token>
std::int64_t widen(const std::byte* from, std::int64_t count, std::int64_t limit, std::int64_t* to) {
  std::int64_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    Token token{};
    std::memcpy(&token, from + static_cast<std::size_t>(i) * sizeof(Token), sizeof(Token));
    to[i] = token;
    largest = std::max(largest, to[i]);
  }
  if (largest < limit) return count;
  return std::find_if(to, to + count, [&](std::int64_t token) { return token >= limit; }) - to;
}

}  // namespace

TokenDataset::TokenDataset(const std::string& path, const TokenDatasetOptions& options) : options_(options) {
  check_options(options_);
  file_ = std::make_shared<const MappedFile>(path);
  const std::size_t bytes = file_->bytes().size();
  const std::size_t size = size_of(options_.dtype);
  if (bytes % size != 0)
    refuse_tokens(*file_,
                  lockstep::str("its ", bytes, " bytes are no whole number of tokens of ", size, " bytes"));
  offset_ = header_bytes(*file_, options_.dtype);
  tokens_ = static_cast<std::int64_t>((bytes - offset_) / size);
  if (tokens_ <= options_.block_size)
    refuse_tokens(*file_, lockstep::str("it holds ", tokens_, " tokens, and a window with its targets needs ",
                                        options_.block_size + 1));
}

void TokenDataset::copy_window(std::int64_t start, std::int64_t* data, std::int64_t* target) const {
  const std::int64_t limit =
      options_.vocab_size > 0 ? options_.vocab_size : std::numeric_limits<std::int64_t>::max();
  const std::size_t size = size_of(options_.dtype);
  const std::byte* const from = file_->bytes().data() + offset_ + static_cast<std::size_t>(start) * size;
  const auto copy = [&](const std::byte* begin, std::int64_t* to) {
    return size == 2 ? widen<std::uint16_t>(begin, options_.block_size, limit, to)
                     : widen<std::uint32_t>(begin, options_.block_size, limit, to);
  };
  for (const int shift : {0, 1}) {
    std::int64_t* const to = shift == 0 ? data : target;
    const std::int64_t good = copy(from + static_cast<std::size_t>(shift) * size, to);
    if (good < options_.block_size)
      refuse_tokens(*file_,
                    lockstep::str("token ", to[good], " at place ", start + shift + good,
                                  " is not below the vocab_size of ", limit, "; is the dtype right?"));
  }
}

Batch TokenDataset::get_batch(std::span<const std::int64_t> indices, std::int64_t epoch) const {
  file_->check_size();
  const auto count = static_cast<std::int64_t>(indices.size());
  const at::TensorOptions type(at::kLong);
  Batch batch{at::empty({count, options_.block_size}, type), at::empty({count, options_.block_size}, type)};
  auto* data = batch.data.mutable_data_ptr<std::int64_t>();
  auto* target = batch.target.mutable_data_ptr<std::int64_t>();
  for (const std::int64_t index : indices) {
    if (index < 0 || index >= size())
      throw InvalidArgument(
          lockstep::str("TokenDataset::get_batch: index ", index, ", expected 0 to ", size() - 1));
    const std::int64_t start =
        options_.random ? SampleRandom(options_.seed, epoch, index).below(tokens_ - options_.block_size)
                        : index * options_.block_size;
    copy_window(start, data, target);
    data += options_.block_size;
    target += options_.block_size;
  }
  return batch;
}

}  // namespace lockstep

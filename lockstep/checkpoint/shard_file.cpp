#include "lockstep/checkpoint/shard_file.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <numeric>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/formats/checksum.h"
#include "lockstep/formats/safetensors_writer.h"
#include "lockstep/os/new_file.h"
#include "lockstep/tensor/dtype_words.h"

namespace lockstep {
namespace {

constexpr std::size_t PORTION = std::size_t{256} << 10U;  // a portion is hashed, and written from the cache
constexpr std::size_t LENGTH_BYTES = 8;

// A piece in safetensors' form: complex128 and complex32 as their parts.
struct Stored {
  std::string dtype;
  std::vector<std::int64_t> shape;
};

Stored stored_as(const PieceToWrite& piece) {
  Stored stored{std::string(dtype_word(piece.tensor.scalar_type())), piece.piece.box.sizes};
  const bool has_parts = stored.dtype == "C128" || stored.dtype == "C32";
  if (has_parts) stored.dtype = stored.dtype == "C128" ? "F64" : "F16";
  if (has_parts) stored.shape.push_back(2);
  return stored;
}

// The tensor's name. For one of several pieces the offsets follow: "model.fc.weight#3,0".
std::string key_of(const PieceToWrite& piece, std::set<std::string>& taken) {
  std::string key = piece.piece.tensor;
  if (!piece.piece.is_whole) {
    char separator = '#';
    for (const std::int64_t offset : piece.piece.box.offsets) {
      key += str(separator, offset);
      separator = ',';
    }
  }
  while (!taken.insert(key).second) key += '\'';  // a tensor has that name
  return key;
}

class ShardWriter {
 public:
  ShardWriter(const std::string& path, bool durable, Pace* pace)
      : file_(path), durable_(durable), pace_(pace) {
    if (pace_ != nullptr) pace_->resume();
  }

  std::uint64_t size() const { return file_.size(); }

  // Returns the bytes' own checksum.
  std::string write(std::span<const std::byte> bytes) {
    Checksum checksum;
    while (!bytes.empty()) {
      const auto portion = bytes.first(std::min(bytes.size(), PORTION));
      checksum.add(portion);
      file_.write(portion);
      bytes = bytes.subspan(portion.size());
      if (pace_ != nullptr) pace_->pause();
    }
    if (durable_) file_.begin_sync();
    return checksum.text();
  }

  void finish() {
    if (durable_) file_.sync();
  }

 private:
  NewFile file_;
  const bool durable_;
  Pace* const pace_;
};

}  // namespace

std::string shard_name(int rank, int ranks) {
  std::array<char, 64> name = {};
  std::snprintf(name.data(), name.size(), "shard-%05d-of-%05d.safetensors", rank, ranks);
  return name.data();
}

WrittenShard write_shard(const std::string& folder, const std::string& name,
                         std::span<const PieceToWrite> pieces, bool durable, Pace* pace) {
  // By falling element size, so that each piece lies at a multiple of its own, because readers map the file.
  std::vector<std::size_t> order(pieces.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return pieces[a].tensor.itemsize() > pieces[b].tensor.itemsize();
  });

  WrittenShard written{.file = {.name = name}, .pieces = std::vector<CheckpointPiece>(pieces.size())};
  std::vector<SafetensorsTensor> entries;
  std::uint64_t position = 0;
  std::set<std::string> keys;
  for (const std::size_t i : order) {
    const PieceToWrite& piece = pieces[i];
    const Stored stored = stored_as(piece);
    written.pieces[i].key = key_of(piece, keys);
    entries.push_back(
        {written.pieces[i].key, stored.dtype, stored.shape, position, position + piece.piece.bytes});
    position = entries.back().end;
  }
  ShardWriter writer(str(folder, '/', name), durable, pace);
  const std::string header = safetensors_head(str(folder, '/', name), entries);
  written.file.header_bytes = header.size();
  written.file.header_xxh128 = writer.write(std::as_bytes(std::span(header)));
  for (const std::size_t i : order) {
    CheckpointPiece& piece = written.pieces[i];
    const at::Tensor bytes = pieces[i].tensor.resolve_conj().resolve_neg().cpu().contiguous();
    piece.begin = writer.size();
    piece.offsets = pieces[i].piece.box.offsets;
    piece.sizes = pieces[i].piece.box.sizes;
    piece.xxh128 = writer.write({static_cast<const std::byte*>(bytes.const_data_ptr()), bytes.nbytes()});
  }
  writer.finish();
  written.file.bytes = writer.size();
  return written;
}

}  // namespace lockstep

#include "lockstep/formats/checkpoint_index.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/shape_bytes.h"
#include "lockstep/base/str.h"
#include "lockstep/formats/checksum.h"
#include "lockstep/formats/safetensors.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr std::uint64_t INDEX_VERSION = 1;
constexpr std::size_t MOST_PIECES = 16384;  // of one tensor; pieces are compared in pairs
constexpr std::size_t MOST_INDEX_DIMENSIONS = 64;
constexpr std::size_t MOST_FILES = 1U << 20U;
constexpr int MOST_LEVELS = 200;

[[noreturn]] void refuse(const std::string& defect) { throw FormatError(defect); }

// Reads the members of a JSON value, each with its type. Errors name the place.
class IndexReader {
 public:
  IndexReader(const json& value, std::string where) : value_(value), where_(std::move(where)) {
    if (!value_.is_object()) refuse(str(where_, " is not an object"));
  }

  const json& at(const char* key) const {
    const auto found = value_.find(key);
    if (found == value_.end()) refuse(str(where_, " has no \"", key, '"'));
    return *found;
  }
  std::string text(const char* key) const {
    if (!at(key).is_string()) refuse(str('"', key, "\" of ", where_, " is not a string"));
    return at(key).get<std::string>();
  }
  // At least 0, as all numbers of an index are.
  std::uint64_t number(const char* key) const { return number_of(at(key), str('"', key, "\" of ", where_)); }
  std::vector<std::int64_t> numbers(const char* key) const {
    if (!at(key).is_array() || at(key).size() > MOST_INDEX_DIMENSIONS)
      refuse(
          str('"', key, "\" of ", where_, " is not a list of at most ", MOST_INDEX_DIMENSIONS, " numbers"));
    std::vector<std::int64_t> list;
    for (const json& entry : at(key))
      list.push_back(static_cast<std::int64_t>(number_of(entry, str('"', key, "\" of ", where_))));
    return list;
  }
  std::string checksum(const char* key = "xxh128") const {
    std::string found = text(key);
    if (!is_checksum(found)) refuse(str('"', key, "\" of ", where_, " is not a checksum"));
    return found;
  }
  const json& list(const char* key, std::size_t most) const {
    if (!at(key).is_array() || at(key).size() > most)
      refuse(str('"', key, "\" of ", where_, " is not a list of at most ", most));
    return at(key);
  }
  const json& object(const char* key) const {
    if (!at(key).is_object()) refuse(str('"', key, "\" of ", where_, " is not an object"));
    return at(key);
  }

 private:
  static std::uint64_t number_of(const json& value, const std::string& where) {
    const bool fits =
        value.is_number_unsigned() &&
        value.get<std::uint64_t>() <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (!fits) refuse(str(where, " is not a number from 0 to 2^63 - 1"));
    return value.get<std::uint64_t>();
  }

  const json& value_;
  std::string where_;
};

json to_json(const CheckpointPiece& piece) {
  return {{"file", piece.file},       {"key", piece.key},     {"begin", piece.begin},
          {"offsets", piece.offsets}, {"sizes", piece.sizes}, {"xxh128", piece.xxh128}};
}

CheckpointPiece read_piece(const json& value, const CheckpointTensor& tensor,
                           const std::vector<CheckpointFile>& files, const std::string& where) {
  const IndexReader reader(value, where);
  CheckpointPiece piece{.file = reader.number("file"),
                        .key = reader.text("key"),
                        .begin = reader.number("begin"),
                        .offsets = reader.numbers("offsets"),
                        .sizes = reader.numbers("sizes"),
                        .xxh128 = reader.checksum()};
  if (piece.file >= files.size()) refuse(str(where, " lies in file ", piece.file, " of ", files.size()));
  const auto bytes = shape_bytes(piece.sizes, checkpoint_dtype_size(tensor.dtype));
  const std::uint64_t size = files[piece.file].bytes;
  if (!bytes || piece.begin > size || *bytes > size - piece.begin)
    refuse(str(where, " ends behind the end of its file"));
  return piece;
}

CheckpointTensor read_tensor(const json& value, const std::vector<CheckpointFile>& files,
                             const std::string& where) {
  const IndexReader reader(value, where);
  CheckpointTensor tensor{.dtype = reader.text("dtype"), .shape = reader.numbers("shape"), .pieces = {}};
  const std::size_t element = checkpoint_dtype_size(tensor.dtype);
  if (element == 0) refuse(str(where, " has the unknown dtype ", in_quotes(tensor.dtype)));
  if (!shape_bytes(tensor.shape, element)) refuse(str("the shape of ", where, " overflows"));
  for (const json& piece : reader.list("pieces", MOST_PIECES))
    tensor.pieces.push_back(read_piece(piece, tensor, files, str("a piece of ", where)));
  const std::string defect = defect_of_pieces(tensor.shape, tensor.pieces);
  if (!defect.empty()) refuse(str(where, ": ", defect));
  return tensor;
}

void read_files(const IndexReader& reader, CheckpointIndex& index) {
  std::set<std::string> names;
  for (const json& entry : reader.list("files", MOST_FILES)) {
    const IndexReader file(entry, "an entry of \"files\"");
    index.files.push_back({.name = file.text("name"),
                           .bytes = file.number("bytes"),
                           .header_bytes = file.number("header_bytes"),
                           .header_xxh128 = file.checksum("header_xxh128")});
    if (index.files.back().header_bytes > index.files.back().bytes)
      refuse(str("the header of ", in_quotes(index.files.back().name), " ends behind the end of the file"));
    const std::string& name = index.files.back().name;
    if (name.empty() || name[0] == '.' || name.find('/') != std::string::npos ||
        name.find('\0') != std::string::npos)
      refuse(str("the file name ", in_quotes(name), " could lie outside of the checkpoint"));
    if (!names.insert(name).second) refuse(str("the file name ", in_quotes(name), " occurs twice"));
  }
}

std::map<std::string, std::string> read_texts(const IndexReader& reader, const char* key) {
  std::map<std::string, std::string> texts;
  for (const auto& [name, value] : reader.object(key).items()) {
    if (!value.is_string()) refuse(str('"', key, "\" holds a value that is not a string"));
    texts[name] = value.get<std::string>();
  }
  return texts;
}

bool boxes_meet(const CheckpointPiece& a, const CheckpointPiece& b) {
  for (std::size_t d = 0; d < a.sizes.size(); ++d)
    if (a.offsets[d] >= b.offsets[d] + b.sizes[d] || b.offsets[d] >= a.offsets[d] + a.sizes[d]) return false;
  return true;
}

bool lies_within(const CheckpointPiece& piece, const std::vector<std::int64_t>& shape) {
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (piece.sizes[d] < 1 || piece.offsets[d] < 0 || piece.sizes[d] > shape[d] ||
        piece.offsets[d] > shape[d] - piece.sizes[d])
      return false;
  return true;
}

// Sorted by their first row, only pieces can overlap of which one begins before the other ends.
bool any_two_meet(const std::vector<CheckpointPiece>& pieces) {
  std::vector<const CheckpointPiece*> sorted;
  for (const CheckpointPiece& piece : pieces) sorted.push_back(&piece);
  std::sort(sorted.begin(), sorted.end(),
            [](const auto* a, const auto* b) { return a->offsets < b->offsets; });
  for (std::size_t i = 0; i < sorted.size(); ++i)
    for (std::size_t j = i + 1; j < sorted.size(); ++j) {
      if (sorted[j]->offsets[0] >= sorted[i]->offsets[0] + sorted[i]->sizes[0]) break;
      if (boxes_meet(*sorted[i], *sorted[j])) return true;
    }
  return false;
}

json body_of(const CheckpointIndex& index) {
  json body = {{"lockstep_checkpoint", INDEX_VERSION}, {"step", index.step},   {"ranks", index.ranks},
               {"made_with", index.made_with},         {"items", index.items}, {"values", *index.values},
               {"rank_values", *index.rank_values}};
  body["files"] = json::array();
  for (const CheckpointFile& file : index.files)
    body["files"].push_back({{"name", file.name},
                             {"bytes", file.bytes},
                             {"header_bytes", file.header_bytes},
                             {"header_xxh128", file.header_xxh128}});
  body["tensors"] = json::object();
  for (const auto& [name, tensor] : index.tensors) {
    json pieces = json::array();
    for (const CheckpointPiece& piece : tensor.pieces) pieces.push_back(to_json(piece));
    body["tensors"][name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"pieces", std::move(pieces)}};
  }
  return body;
}

CheckpointIndex read_index(json& body) {
  const IndexReader reader(body, "the index");
  const std::uint64_t version = reader.number("lockstep_checkpoint");
  if (version != INDEX_VERSION)
    refuse(str("it has version ", version, " of the format; this library reads version ", INDEX_VERSION));
  const std::string checksum = reader.checksum();
  body.erase("xxh128");
  if (checksum_of(body.dump()) != checksum)
    refuse("the index was changed or damaged: its checksum is another");
  CheckpointIndex index;
  index.step = static_cast<std::int64_t>(reader.number("step"));
  const std::uint64_t ranks = reader.number("ranks");
  if (ranks < 1 || ranks > MOST_FILES) refuse(str("it claims to be saved by ", ranks, " ranks"));
  index.ranks = static_cast<int>(ranks);
  index.made_with = read_texts(reader, "made_with");
  index.items = read_texts(reader, "items");
  read_files(reader, index);
  for (const auto& [name, value] : reader.object("tensors").items())
    index.tensors.emplace(name, read_tensor(value, index.files, str("tensor ", in_quotes(name))));
  *index.values = reader.object("values");
  *index.rank_values = reader.object("rank_values");
  for (const auto& [name, list] : index.rank_values->items())
    if (!list.is_array() || list.size() != ranks)
      refuse(str("the values of item ", in_quotes(name), " are not one a rank"));
  return index;
}

}  // namespace

CheckpointIndex::CheckpointIndex()
    : values(std::make_unique<json>(json::object())), rank_values(std::make_unique<json>(json::object())) {}
CheckpointIndex::CheckpointIndex(const CheckpointIndex& other)
    : step(other.step),
      ranks(other.ranks),
      made_with(other.made_with),
      files(other.files),
      items(other.items),
      tensors(other.tensors),
      values(std::make_unique<json>(*other.values)),
      rank_values(std::make_unique<json>(*other.rank_values)) {}
CheckpointIndex::CheckpointIndex(CheckpointIndex&&) noexcept = default;
CheckpointIndex& CheckpointIndex::operator=(const CheckpointIndex& other) {
  return *this = CheckpointIndex(other);
}
CheckpointIndex& CheckpointIndex::operator=(CheckpointIndex&&) noexcept = default;
CheckpointIndex::~CheckpointIndex() = default;

std::size_t checkpoint_dtype_size(std::string_view dtype) {
  if (dtype == "C128") return 16;
  if (dtype == "C32") return 4;
  return safetensors_dtype_size(dtype);
}

std::int64_t elements_of(const CheckpointPiece& piece) {
  return std::accumulate(piece.sizes.begin(), piece.sizes.end(), std::int64_t{1}, std::multiplies<>());
}

std::uint64_t bytes_of(const CheckpointPiece& piece, const CheckpointTensor& tensor) {
  return static_cast<std::uint64_t>(elements_of(piece)) * checkpoint_dtype_size(tensor.dtype);
}

std::string defect_of_pieces(const std::vector<std::int64_t>& shape,
                             const std::vector<CheckpointPiece>& pieces) {
  const auto elements = shape_bytes(shape, 1);
  if (!elements) return "its shape overflows";
  std::uint64_t covered = 0;
  for (const CheckpointPiece& piece : pieces) {
    if (piece.offsets.size() != shape.size() || piece.sizes.size() != shape.size())
      return "a piece has another number of dimensions";
    if (!lies_within(piece, shape)) return "a piece is empty or lies outside of the tensor";
    // Not more than all elements, so the sum of two cannot overflow.
    covered += static_cast<std::uint64_t>(elements_of(piece));
    if (covered > *elements) return "its pieces overlap";
  }
  if (covered < *elements) return str("its pieces hold ", covered, " of its ", *elements, " elements");
  return !shape.empty() && any_two_meet(pieces) ? "its pieces overlap" : "";
}

std::string to_text(const CheckpointIndex& index) {
  json body = body_of(index);
  body["xxh128"] = checksum_of(body.dump());
  return body.dump();
}

CheckpointIndex parse_checkpoint_index(std::string_view text) {
  // dump() recurses for each level.
  const auto limit_depth = [](int depth, json::parse_event_t /*event*/, const json& /*parsed*/) {
    if (depth > MOST_LEVELS) refuse(str("its values are nested more than ", MOST_LEVELS, " levels deep"));
    return true;
  };
  json body = json::parse(text, limit_depth, /*allow_exceptions=*/false);
  if (body.is_discarded()) refuse("it is not JSON");
  return read_index(body);
}

}  // namespace lockstep

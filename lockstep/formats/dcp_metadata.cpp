#include "lockstep/formats/dcp_metadata.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/shape_bytes.h"
#include "lockstep/base/str.h"
#include "lockstep/formats/checkpoint_index.h"
#include "lockstep/formats/pickle.h"
#include "lockstep/formats/tensor_dtypes.h"

namespace lockstep {
namespace {

constexpr std::size_t MOST_CHUNK_DIMENSIONS = 64;
constexpr std::size_t MOST_CHUNKS = 16384;  // of one tensor; chunks are compared in pairs

// The classes that the metadata may name. None of them is imported or called.
constexpr auto RECORDS = std::to_array<std::string_view>({
    "torch.distributed.checkpoint.metadata.Metadata",
    "torch.distributed.checkpoint.metadata.TensorStorageMetadata",
    "torch.distributed.checkpoint.metadata.BytesStorageMetadata",
    "torch.distributed.checkpoint.metadata.ChunkStorageMetadata",
    "torch.distributed.checkpoint.metadata.TensorProperties",
    "torch.distributed.checkpoint.metadata.MetadataIndex",
    "torch.distributed.checkpoint.metadata.StorageMeta",
    "torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING",
    "torch.distributed.checkpoint.filesystem._StorageInfo",
    "torch.serialization._get_layout",
    "torch.Size",
    "collections.OrderedDict",
    "builtins.getattr",
    "pathlib.PosixPath",
    "pathlib.WindowsPath",
    "torch.float64",
    "torch.float32",
    "torch.float16",
    "torch.bfloat16",
    "torch.int64",
    "torch.int32",
    "torch.int16",
    "torch.int8",
    "torch.uint64",
    "torch.uint32",
    "torch.uint16",
    "torch.uint8",
    "torch.bool",
    "torch.complex128",
    "torch.complex64",
    "torch.complex32",
    "torch.float8_e4m3fn",
    "torch.float8_e5m2",
    "torch.float8_e8m0fnu",
    "torch.float8_e4m3fnuz",
    "torch.float8_e5m2fnuz",
});

// Places of items, by the tensor's name and the chunk's offsets.
using Places = std::map<std::pair<std::string, std::vector<std::int64_t>>, DcpChunk>;

class MetadataReader {
 public:
  explicit MetadataReader(const Pickle& pickle) : pickle_(pickle) {}

  DcpMetadata read() {
    const PickleNode& root = object(pickle_.root, "Metadata");
    const Places places = places_of(dict(field(root, "storage_data"), "storage_data"));
    const PickleNode& entries = dict(field(root, "state_dict_metadata"), "state_dict_metadata");
    for (std::size_t i = 0; i < entries.items.size(); i += 2) {
      const std::string name = text(entries.items[i], "a name");
      if (class_of(entries.items[i + 1]) == "BytesStorageMetadata") {
        metadata_.skipped.push_back(name);
      } else {
        metadata_.tensors.push_back(
            tensor_of(name, object(entries.items[i + 1], "TensorStorageMetadata"), places));
      }
    }
    const auto by_name = [](const DcpTensor& a, const DcpTensor& b) { return a.name < b.name; };
    std::sort(metadata_.tensors.begin(), metadata_.tensors.end(), by_name);
    std::sort(metadata_.skipped.begin(), metadata_.skipped.end());
    return std::move(metadata_);
  }

 private:
  const PickleNode& node(std::uint32_t id) const { return pickle_.nodes[id]; }

  [[noreturn]] static void refuse_metadata(const std::string& defect) { throw FormatError(defect); }

  // Returns "TensorStorageMetadata" for a record of that class; "" for any other value.
  std::string class_of(std::uint32_t id) const {
    const PickleNode& value = node(id);
    if (value.kind != PickleKind::OBJECT && value.kind != PickleKind::CALL) return {};
    const std::string& name = node(value.items[0]).text;
    return name.substr(name.rfind('.') + 1);
  }

  const PickleNode& object(std::uint32_t id, const char* name) const {
    if (class_of(id) != name || node(id).state == PickleNode::NO_STATE)
      refuse_metadata(str("it has no ", name));
    return node(id);
  }

  const PickleNode& dict(std::uint32_t id, const char* what) const {
    if (node(id).kind != PickleKind::DICT) refuse_metadata(str(what, " is not a dict"));
    return node(id);
  }

  // A member of a record, by name.
  std::optional<std::uint32_t> optional_field(const PickleNode& record, std::string_view name) const {
    const PickleNode& members = dict(record.state, "a record");
    for (std::size_t i = 0; i < members.items.size(); i += 2)
      if (node(members.items[i]).kind == PickleKind::TEXT && node(members.items[i]).text == name)
        return members.items[i + 1];
    return std::nullopt;
  }
  std::uint32_t field(const PickleNode& record, const char* name) const {
    const auto found = optional_field(record, name);
    if (!found) refuse_metadata(str("a record has no ", name));
    return *found;
  }

  std::string text(std::uint32_t id, const char* what) const {
    if (node(id).kind != PickleKind::TEXT) refuse_metadata(str(what, " is not a text"));
    return node(id).text;
  }

  std::uint64_t number(std::uint32_t id, const char* what) const {
    if (node(id).kind != PickleKind::INT || node(id).integer < 0)
      refuse_metadata(str(what, " is not a whole number from 0"));
    return static_cast<std::uint64_t>(node(id).integer);
  }

  // torch.Size((2, 3))
  std::vector<std::int64_t> size(std::uint32_t id, const char* what) const {
    const PickleNode* list = &node(id);
    if (class_of(id) == "Size" && node(list->items[1]).items.size() == 1)
      list = &node(node(list->items[1]).items[0]);
    if (list->kind != PickleKind::TUPLE || list->items.size() > MOST_CHUNK_DIMENSIONS)
      refuse_metadata(str(what, " is not a torch.Size"));
    std::vector<std::int64_t> sizes;
    for (const std::uint32_t item : list->items)
      sizes.push_back(static_cast<std::int64_t>(number(item, what)));
    return sizes;
  }

  Places places_of(const PickleNode& storage_data) const {
    Places places;
    for (std::size_t i = 0; i < storage_data.items.size(); i += 2) {
      const PickleNode& index = object(storage_data.items[i], "MetadataIndex");
      const PickleNode& info = object(storage_data.items[i + 1], "_StorageInfo");
      const auto offset = optional_field(index, "offset");
      if (!offset || node(*offset).kind == PickleKind::NONE) continue;  // of an entry that is not a tensor
      DcpChunk chunk{.offsets = size(*offset, "an offset"),
                     .sizes = {},
                     .file = text(field(info, "relative_path"), "a path"),
                     .begin = number(field(info, "offset"), "an offset"),
                     .length = number(field(info, "length"), "a length")};
      if (chunk.file.empty() || chunk.file[0] == '.' || chunk.file.find('/') != std::string::npos)
        refuse_metadata(str("the file name ", in_quotes(chunk.file), " could lie outside of the checkpoint"));
      places.emplace(std::pair(text(field(index, "fqn"), "a name"), chunk.offsets), std::move(chunk));
    }
    return places;
  }

  // The state of a TensorProperties is the tuple that its __getstate__ makes; the dtype is the first.
  std::string dtype_of(std::uint32_t id, const std::string& name) const {
    const PickleNode& state = node(object(id, "TensorProperties").state);
    const TensorDtype* dtype = nullptr;
    constexpr std::string_view TORCH_PREFIX = "torch.";
    if (state.kind == PickleKind::TUPLE && !state.items.empty() &&
        node(state.items[0]).kind == PickleKind::GLOBAL)
      dtype = by_torch_name(std::string_view(node(state.items[0]).text).substr(TORCH_PREFIX.size()));
    if (dtype == nullptr) refuse_metadata(str("tensor ", in_quotes(name), " has an unknown dtype"));
    return std::string(dtype->word);
  }

  DcpTensor tensor_of(const std::string& name, const PickleNode& record, const Places& places) const {
    DcpTensor tensor{.name = name,
                     .dtype = dtype_of(field(record, "properties"), name),
                     .shape = size(field(record, "size"), "a size"),
                     .chunks = {}};
    const PickleNode& chunks = node(field(record, "chunks"));
    if (chunks.kind != PickleKind::LIST || chunks.items.size() > MOST_CHUNKS)
      refuse_metadata(str("tensor ", in_quotes(name), " has no list of at most ", MOST_CHUNKS, " chunks"));
    std::vector<CheckpointPiece> pieces;
    for (const std::uint32_t item : chunks.items) {
      const PickleNode& chunk = object(item, "ChunkStorageMetadata");
      const auto place = places.find({name, size(field(chunk, "offsets"), "an offset")});
      if (place == places.end())
        refuse_metadata(str("a chunk of tensor ", in_quotes(name), " is not in any file"));
      tensor.chunks.push_back(place->second);
      tensor.chunks.back().sizes = size(field(chunk, "sizes"), "a size");
      if (const auto elements = shape_bytes(tensor.chunks.back().sizes, 1); !elements || *elements == 0) {
        tensor.chunks.pop_back();  // an empty chunk holds nothing
        continue;
      }
      pieces.push_back(
          {.key = {}, .offsets = place->second.offsets, .sizes = tensor.chunks.back().sizes, .xxh128 = {}});
    }
    if (!shape_bytes(tensor.shape, find_dtype(tensor.dtype)->size))
      refuse_metadata(str("the shape of tensor ", in_quotes(name), " overflows"));
    const std::string defect = defect_of_pieces(tensor.shape, pieces);
    if (!defect.empty()) refuse_metadata(str("tensor ", in_quotes(name), ": ", defect));
    return tensor;
  }

  const Pickle& pickle_;
  DcpMetadata metadata_;
};

}  // namespace

DcpMetadata parse_dcp_metadata(std::span<const std::byte> pickle) {
  const Pickle parsed = parse_pickle(pickle, RECORDS);
  return MetadataReader(parsed).read();
}

}  // namespace lockstep

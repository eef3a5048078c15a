#include "lockstep/formats/pt_writer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/shape_bytes.h"
#include "lockstep/base/str.h"
#include "lockstep/formats/tensor_dtypes.h"

namespace lockstep {
namespace {

static_assert(std::endian::native == std::endian::little, "the bytes of a .pt file are copied as they are");

constexpr const char* FOLDER = "archive";  // all records lie in it; torch.load takes any name
constexpr std::string_view ENDIANNESS = "little";
constexpr std::string_view FORMAT_VERSION = "3\n";
constexpr unsigned PICKLE_PROTOCOL = 2;

[[noreturn]] void refuse(const std::string& path, const std::string& defect) {
  throw InvalidArgument(str(".pt file ", in_quotes(path), " cannot be written: ", defect));
}
[[noreturn]] void refuse(const std::string& path, const PtEntry& tensor, const std::string& defect) {
  refuse(path, str("tensor ", in_quotes(tensor.name), ": ", defect));
}

bool is_utf8(const std::string& text) {
  try {
    nlohmann::json(text).dump();
    return true;
  } catch (const nlohmann::json::exception&) {
    return false;
  }
}

const TensorDtype& dtype_of(const std::string& path, const PtEntry& tensor) {
  const TensorDtype* const dtype = find_dtype(tensor.dtype);
  if (dtype == nullptr) refuse(path, tensor, str("unknown dtype ", in_quotes(tensor.dtype)));
  return *dtype;
}

std::uint64_t bytes_of(const std::string& path, const PtEntry& tensor) {
  const auto bytes = shape_bytes(tensor.shape, dtype_of(path, tensor).size);
  if (!bytes) refuse(path, tensor, "its shape is negative or overflows");
  return *bytes;
}

// One storage for each tensor.
std::vector<std::uint64_t> own_storages(const std::string& path, std::vector<PtEntry>& tensors) {
  std::vector<std::uint64_t> sizes;
  for (PtEntry& tensor : tensors) {
    tensor.storage = sizes.size();
    tensor.offset = 0;
    tensor.strides.clear();
    sizes.push_back(bytes_of(path, tensor));
  }
  return sizes;
}

void set_strides(PtEntry& tensor) {
  if (!tensor.strides.empty() || tensor.shape.empty()) return;
  tensor.strides.assign(tensor.shape.size(), 1);
  for (std::size_t i = tensor.shape.size() - 1; i-- > 0;)
    tensor.strides[i] = tensor.strides[i + 1] * std::max<std::int64_t>(tensor.shape[i + 1], 1);
}

void check_place(const std::string& path, const PtEntry& tensor, std::uint64_t storage_size) {
  if (tensor.strides.size() != tensor.shape.size()) refuse(path, tensor, "it has not one stride a dimension");
  const std::uint64_t elements = storage_size / dtype_of(path, tensor).size;
  std::uint64_t last = tensor.offset;
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    std::uint64_t step = 0;
    if (tensor.strides[i] < 0 ||
        __builtin_mul_overflow(static_cast<std::uint64_t>(std::max<std::int64_t>(tensor.shape[i] - 1, 0)),
                               static_cast<std::uint64_t>(tensor.strides[i]), &step) ||
        __builtin_add_overflow(last, step, &last))
      refuse(path, tensor, "its strides are negative or overflow");
  }
  if (bytes_of(path, tensor) > 0 && last >= elements)
    refuse(path, tensor, str("its last element is number ", last, " of its storage, which has ", elements));
}

void check(const std::string& path, std::vector<PtEntry>& tensors,
           const std::vector<std::uint64_t>& storages) {
  std::set<std::string_view> names;
  std::vector<std::string_view> dtypes(storages.size());
  for (PtEntry& tensor : tensors) {
    if (!is_utf8(tensor.name)) refuse(path, tensor, "its name is not UTF-8");
    if (!names.insert(tensor.name).second) refuse(path, tensor, "its name occurs twice");
    bytes_of(path, tensor);
    set_strides(tensor);
    if (tensor.storage >= storages.size()) refuse(path, tensor, str("there is no storage ", tensor.storage));
    check_place(path, tensor, storages[tensor.storage]);
    std::string_view& dtype = dtypes[tensor.storage];
    if (!dtype.empty() && dtype != tensor.dtype)
      refuse(path, tensor, "its storage has tensors of another dtype");
    dtype = tensor.dtype;
    if (storages[tensor.storage] % dtype_of(path, tensor).size != 0)
      refuse(path, tensor, "its storage holds no whole number of elements");
  }
}

// The opcodes that a dict of tensors needs, by the letters of Python's pickletools.
class PickleText {
 public:
  std::string text;

  void op(std::string_view letters) { text += letters; }
  void global(std::string_view module, std::string_view name) { text += str('c', module, '\n', name, '\n'); }
  void string(std::string_view value) {
    text += 'X';
    little_endian(value.size(), 4);
    text += value;
  }
  void number(std::uint64_t value) {
    text += "\x8a\x09";  // LONG1 of nine bytes: the last one makes it positive
    little_endian(value, 8);
    text += '\0';
  }
  void numbers(const std::vector<std::int64_t>& values) {
    text += '(';
    for (const std::int64_t value : values) number(static_cast<std::uint64_t>(value));
    text += 't';
  }

 private:
  void little_endian(std::uint64_t value, unsigned bytes) {
    for (unsigned i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xffU);
  }
};

void add_tensor(PickleText& pickle, const PtEntry& tensor, std::uint64_t storage_size) {
  const TensorDtype& dtype = *find_dtype(tensor.dtype);
  const bool is_typed = !dtype.storage_class.empty();
  pickle.string(tensor.name);
  pickle.global("torch._utils", is_typed ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
  pickle.op("((");
  pickle.string("storage");
  if (is_typed) {
    pickle.global("torch", dtype.storage_class);
  } else {
    pickle.global("torch.storage", "UntypedStorage");
  }
  pickle.string(std::to_string(tensor.storage));
  pickle.string("cpu");
  pickle.number(is_typed ? storage_size / dtype.size : storage_size);
  pickle.op("tQ");
  pickle.number(tensor.offset);
  pickle.numbers(tensor.shape);
  pickle.numbers(tensor.strides);
  pickle.op("\x89");  // requires no gradient
  pickle.global("collections", "OrderedDict");
  pickle.op(")R");  // without hooks
  if (!is_typed) pickle.global("torch", dtype.torch_name);
  pickle.op("tR");
}

std::string pickle_of(const std::vector<PtEntry>& tensors, const std::vector<std::uint64_t>& storages) {
  PickleText pickle;
  pickle.op("\x80");
  pickle.text += static_cast<char>(PICKLE_PROTOCOL);
  pickle.op("}(");
  for (const PtEntry& tensor : tensors) add_tensor(pickle, tensor, storages[tensor.storage]);
  pickle.op("u.");
  return std::move(pickle.text);
}

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

}  // namespace

PtWriter::PtWriter(const std::string& path, std::vector<PtEntry> tensors)
    : path_(path),
      tensors_(std::move(tensors)),
      storages_(own_storages(path, tensors_)),
      pickle_((check(path, tensors_, storages_), pickle_of(tensors_, storages_))),
      zip_(path) {
  start();
}

PtWriter::PtWriter(const std::string& path, std::vector<PtEntry> tensors, std::vector<std::uint64_t> storages)
    : path_(path),
      tensors_(std::move(tensors)),
      storages_(std::move(storages)),
      pickle_((check(path, tensors_, storages_), pickle_of(tensors_, storages_))),
      zip_(path) {
  start();
}

void PtWriter::start() {
  zip_.begin(str(FOLDER, "/data.pkl"), pickle_.size());
  zip_.write(bytes_of(pickle_));
  zip_.begin(str(FOLDER, "/byteorder"), ENDIANNESS.size());
  zip_.write(bytes_of(ENDIANNESS));
  begin_storages();
}

// Begins storages up to one that has bytes.
void PtWriter::begin_storages() {
  while (missing_ == 0 && next_ < storages_.size()) {
    missing_ = storages_[next_];
    zip_.begin(str(FOLDER, "/data/", next_), missing_);
    ++next_;
  }
}

void PtWriter::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (missing_ == 0) refuse(path_, str(bytes.size(), " bytes came after the last storage was full"));
    const auto part = bytes.first(std::min<std::uint64_t>(missing_, bytes.size()));
    zip_.write(part);
    missing_ -= part.size();
    bytes = bytes.subspan(part.size());
    begin_storages();
  }
}

void PtWriter::commit(bool durable) {
  if (missing_ > 0) refuse(path_, str("storage ", next_ - 1, " lacks ", missing_, " bytes"));
  zip_.begin(str(FOLDER, "/version"), FORMAT_VERSION.size());
  zip_.write(bytes_of(FORMAT_VERSION));
  zip_.commit(durable);
}

void write_pt(const std::string& path, std::span<const PtTensorSource> tensors) {
  std::vector<PtEntry> entries;
  for (const PtTensorSource& tensor : tensors) {
    entries.push_back({.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape});
    if (const std::uint64_t needed = bytes_of(path, entries.back()); needed != tensor.bytes.size())
      refuse(path, entries.back(), str("its shape needs ", needed, " bytes, got ", tensor.bytes.size()));
  }
  PtWriter writer(path, std::move(entries));
  for (const PtTensorSource& tensor : tensors) writer.write(tensor.bytes);
  writer.commit();
}

}  // namespace lockstep

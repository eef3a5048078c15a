#include "lockstep/formats/pickle_tensors.h"

#include <algorithm>
#include <array>
#include <limits>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/shape_bytes.h"
#include "lockstep/base/str.h"
#include "lockstep/formats/tensor_dtypes.h"

namespace lockstep {
namespace {

constexpr std::size_t PICKLED_NAME_SHOWN = 100;
constexpr int DEEPEST = 64;                  // containers within containers
constexpr std::size_t MOST_DIMENSIONS = 64;  // libtorch has no more
// Values may occur several times, so the result can be larger than the pickle: at most by this factor.
constexpr std::uint64_t MEMORY_FACTOR = 64;
constexpr std::uint64_t MEMORY_BASE = 1 << 20;
constexpr std::uint64_t ENTRY_BYTES = 64;  // besides its name, text and numbers

constexpr auto KNOWN_GLOBALS = std::to_array<std::string_view>({
    "collections.OrderedDict",
    "torch._utils._rebuild_tensor_v2",
    "torch._utils._rebuild_tensor_v3",
    "torch._utils._rebuild_parameter",
    "torch.storage.UntypedStorage",
    "torch.Size",
    "torch.device",
    "torch.DoubleStorage",
    "torch.FloatStorage",
    "torch.HalfStorage",
    "torch.BFloat16Storage",
    "torch.LongStorage",
    "torch.IntStorage",
    "torch.ShortStorage",
    "torch.CharStorage",
    "torch.ByteStorage",
    "torch.BoolStorage",
    "torch.ComplexDoubleStorage",
    "torch.ComplexFloatStorage",
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
    "torch.float4_e2m1fn_x2",
});

constexpr std::string_view TORCH = "torch.";

std::string_view without_torch(std::string_view name) {
  return name.starts_with(TORCH) ? name.substr(TORCH.size()) : name;
}

// The storage of a tensor: its number, and its dtype unless it is a storage of bytes.
struct StorageUse {
  std::size_t number;
  const TensorDtype* dtype;
};

class Reader {
 public:
  Reader(const Pickle& pickle, std::uint64_t pickle_size)
      : pickle_(pickle), memory_left_(MEMORY_FACTOR * pickle_size + MEMORY_BASE) {}

  PickledState read() {
    visit(pickle_.root, "", 0);
    return std::move(state_);
  }

 private:
  const PickleNode& node(std::uint32_t id) const { return pickle_.nodes[id]; }

  [[noreturn]] static void refuse(const std::string& name, const std::string& defect) {
    throw FormatError(str(name.empty() ? "the value" : in_quotes(name, PICKLED_NAME_SHOWN), ": ", defect));
  }

  void spend(std::uint64_t bytes) {
    if (bytes > memory_left_)
      throw FormatError("its values occur so often that reading it would take far more memory than the file");
    memory_left_ -= bytes;
  }

  // Containers may hold themselves and each other many times. So depth, number and names of the results are
  // limited by the size of the pickle.
  void visit(std::uint32_t id, const std::string& name, int depth) {
    if (depth > DEEPEST) refuse(name, "its containers are nested too deeply, or hold themselves");
    const PickleNode& value = node(id);
    spend(ENTRY_BYTES + name.size() + value.text.size());
    const auto child = [&](const std::string& key) { return name.empty() ? key : str(name, '.', key); };
    if (value.kind == PickleKind::DICT) {
      for (std::size_t i = 0; i < value.items.size(); i += 2)
        visit(value.items[i + 1], child(key_text(name, value.items[i])), depth + 1);
    } else if (value.kind == PickleKind::LIST || value.kind == PickleKind::TUPLE) {
      for (std::size_t i = 0; i < value.items.size(); ++i)
        visit(value.items[i], child(std::to_string(i)), depth + 1);
    } else if (value.kind == PickleKind::CALL) {
      call(value, name, depth);
    } else {
      add_scalar(value, name);
    }
  }

  std::string key_text(const std::string& name, std::uint32_t key) const {
    if (node(key).kind == PickleKind::TEXT) return node(key).text;
    if (node(key).kind == PickleKind::INT) return std::to_string(node(key).integer);
    refuse(name, "a key of its dict is neither a text nor a whole number");
  }

  void claim(const std::string& name) {
    if (!names_.insert(name).second) refuse(name, "two of its values have this name");
  }

  void add(const std::string& name, PtScalar value) {
    claim(name);
    state_.scalars.emplace_back(name, std::move(value));
  }

  void add_scalar(const PickleNode& value, const std::string& name) {
    switch (value.kind) {
      case PickleKind::NONE: return add(name, std::monostate());
      case PickleKind::BOOL: return add(name, value.integer != 0);
      case PickleKind::INT: return add(name, value.integer);
      case PickleKind::BIG_INT: return add(name, unsigned_number(value, name));
      case PickleKind::FLOAT: return add(name, value.real);
      case PickleKind::TEXT:
      case PickleKind::GLOBAL: return add(name, value.text);  // a dtype is its name
      default: refuse(name, "it is neither a tensor nor a number, a text or None");
    }
  }

  // A number that fits 64 bits without a sign is written with a ninth byte of 0.
  static std::uint64_t unsigned_number(const PickleNode& value, const std::string& name) {
    if (value.text.size() != sizeof(std::uint64_t) + 1 || value.text.back() != 0)
      refuse(name, "it is a whole number of more than 64 bits");
    std::uint64_t number = 0;
    for (std::size_t i = sizeof number; i-- > 0;)
      number = number << 8U | static_cast<unsigned char>(value.text[i]);
    return number;
  }

  void call(const PickleNode& value, const std::string& name, int depth) {
    const std::string& callable = node(value.items[0]).text;
    const std::vector<std::uint32_t>& arguments = node(value.items[1]).items;
    if (value.state != PickleNode::NO_STATE) refuse(name, str("a state is set of ", callable));
    if (callable == "torch._utils._rebuild_tensor_v2") return add_tensor(arguments, name, false);
    if (callable == "torch._utils._rebuild_tensor_v3") return add_tensor(arguments, name, true);
    const bool is_parameter = callable == "torch._utils._rebuild_parameter" && arguments.size() == 3;
    const bool is_size = callable == "torch.Size" && arguments.size() == 1;
    if (is_parameter || is_size) return visit(arguments[0], name, depth + 1);
    if (callable == "torch.device" && !arguments.empty() && node(arguments[0]).kind == PickleKind::TEXT)
      return add(name, node(arguments[0]).text);
    refuse(name, str("it calls ", callable, ", which makes no tensor"));
  }

  std::int64_t whole_number(std::uint32_t id, const std::string& name, const char* what) const {
    if (node(id).kind != PickleKind::INT || node(id).integer < 0)
      refuse(name, str(what, " is not a whole number from 0"));
    return node(id).integer;
  }
  std::vector<std::int64_t> whole_numbers(std::uint32_t id, const std::string& name, const char* what) const {
    const PickleNode* list = &node(id);
    if (list->kind == PickleKind::CALL && node(list->items[0]).text == "torch.Size" &&
        node(list->items[1]).items.size() == 1)
      list = &node(node(list->items[1]).items[0]);
    if (list->kind != PickleKind::TUPLE || list->items.size() > MOST_DIMENSIONS)
      refuse(name, str(what, " is not a tuple of at most ", MOST_DIMENSIONS, " numbers"));
    std::vector<std::int64_t> numbers;
    for (const std::uint32_t item : list->items) numbers.push_back(whole_number(item, name, what));
    return numbers;
  }

  // ("storage", class, key, device, number of elements)
  StorageUse storage_of(std::uint32_t id, const std::string& name) {
    if (node(id).kind != PickleKind::PERSISTENT) refuse(name, "its storage is not a persistent reference");
    const PickleNode& tuple = node(node(id).items[0]);
    if (tuple.kind != PickleKind::TUPLE || tuple.items.size() != 5)
      refuse(name, "its storage does not have five values");
    const auto& parts = tuple.items;
    if (node(parts[0]).text != "storage" || node(parts[1]).kind != PickleKind::GLOBAL ||
        node(parts[2]).kind != PickleKind::TEXT)
      refuse(name, "its storage has no class or no key");
    const std::string_view storage_class = without_torch(node(parts[1]).text);
    const TensorDtype* dtype = by_storage_class(storage_class);
    if (dtype == nullptr && storage_class != "storage.UntypedStorage")
      refuse(name, str(storage_class, " is not a storage class"));
    const auto count = std::array{whole_number(parts[4], name, "the size of its storage")};
    const auto size = shape_bytes(count, dtype == nullptr ? 1 : dtype->size);
    if (!size) refuse(name, "the size of its storage overflows");
    const std::string& key = node(parts[2]).text;
    const auto [found, is_new] = storages_.try_emplace(key, state_.storages.size());
    if (is_new) state_.storages.push_back({key, *size});
    if (state_.storages[found->second].size != *size)
      refuse(name, str("its storage ", in_quotes(key, PICKLED_NAME_SHOWN), " has two sizes"));
    return {found->second, dtype};
  }

  // (storage, offset, shape, strides, requires_grad, hooks [, dtype] [, {"conj": True, "neg": True}])
  void add_tensor(const std::vector<std::uint32_t>& arguments, const std::string& name, bool names_dtype) {
    const std::size_t needed = names_dtype ? 7 : 6;
    if (arguments.size() != needed && arguments.size() != needed + 1)
      refuse(name, str("its tensor is made of ", arguments.size(), " values"));
    claim(name);
    PtTensor tensor;
    tensor.name = name;
    const StorageUse storage = storage_of(arguments[0], name);
    tensor.storage = storage.number;
    const TensorDtype* dtype = storage.dtype;
    if (names_dtype) {
      if (dtype != nullptr) refuse(name, "its storage has a dtype of its own");
      dtype = node(arguments[6]).kind == PickleKind::GLOBAL
                  ? by_torch_name(without_torch(node(arguments[6]).text))
                  : nullptr;
    }
    if (dtype == nullptr) refuse(name, "its tensor has an unknown dtype");
    tensor.dtype = dtype->word;
    tensor.offset = static_cast<std::uint64_t>(whole_number(arguments[1], name, "its offset"));
    tensor.shape = whole_numbers(arguments[2], name, "its shape");
    tensor.strides = whole_numbers(arguments[3], name, "its strides");
    spend(2 * sizeof(std::int64_t) * tensor.shape.size());
    check_place(tensor, dtype->size, state_.storages[storage.number].size);
    if (arguments.size() > needed) read_bits(arguments[needed], tensor);
    state_.tensors.push_back(std::move(tensor));
  }

  static void check_place(const PtTensor& tensor, std::uint64_t element, std::uint64_t storage_size) {
    if (tensor.shape.size() != tensor.strides.size())
      refuse(tensor.name, "its shape and its strides have different lengths");
    const auto bytes = shape_bytes(tensor.shape, element);
    if (!bytes) refuse(tensor.name, "its shape overflows");
    if (*bytes == 0) {
      if (tensor.offset > storage_size / element) refuse(tensor.name, "it begins behind its storage");
      return;
    }
    std::uint64_t last = tensor.offset;
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
      std::uint64_t step = 0;
      if (__builtin_mul_overflow(static_cast<std::uint64_t>(tensor.shape[i] - 1),
                                 static_cast<std::uint64_t>(tensor.strides[i]), &step) ||
          __builtin_add_overflow(last, step, &last))
        refuse(tensor.name, "its strides overflow");
    }
    if (last >= storage_size / element)
      refuse(tensor.name,
             str("its last element is number ", last, " of its storage, which has ", storage_size / element));
  }

  void read_bits(std::uint32_t id, PtTensor& tensor) const {
    const PickleNode& bits = node(id);
    if (bits.kind == PickleKind::NONE) return;
    if (bits.kind != PickleKind::DICT) refuse(tensor.name, "its metadata is not a dict");
    for (std::size_t i = 0; i < bits.items.size(); i += 2) {
      const std::string& key = node(bits.items[i]).text;
      const bool is_on = node(bits.items[i + 1]).integer != 0;
      const std::string& dtype = tensor.dtype;
      const bool is_complex = dtype.starts_with('C');
      const bool has_sign =
          is_complex || dtype == "F64" || dtype == "F32" || dtype == "F16" || dtype == "BF16";
      if (key == "conj" && is_complex) {
        tensor.conjugate = is_on;
      } else if (key == "neg" && has_sign) {
        tensor.negative = is_on;
      } else {
        refuse(tensor.name, str("its metadata has an unknown key ", in_quotes(key, PICKLED_NAME_SHOWN)));
      }
    }
  }

  const Pickle& pickle_;
  std::uint64_t memory_left_;
  std::set<std::string> names_;
  std::map<std::string, std::size_t> storages_;
  PickledState state_;
};

}  // namespace

PickledState pickled_state(std::span<const std::byte> pickle) {
  const Pickle parsed = parse_pickle(pickle, KNOWN_GLOBALS);
  return Reader(parsed, pickle.size()).read();
}

std::uint64_t size_of(const PtTensor& tensor) {
  const TensorDtype* const dtype = find_dtype(tensor.dtype);
  if (dtype == nullptr) throw InvalidArgument(str("unknown dtype ", in_quotes(tensor.dtype)));
  const auto bytes = shape_bytes(tensor.shape, dtype->size);
  if (!bytes) throw InvalidArgument(str("the shape of ", in_quotes(tensor.name), " overflows"));
  return *bytes;
}

}  // namespace lockstep

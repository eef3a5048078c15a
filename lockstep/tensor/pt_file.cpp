#include "lockstep/tensor/pt_file.h"

#include <ATen/core/Dict.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <ATen/ops/empty.h>
#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/serialization/pickler.h>

#include <exception>
#include <map>
#include <tuple>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/os/atomic_file.h"

namespace lockstep {
namespace {

// The dtypes for which Python has a storage class, which is how a .pt file names a dtype.
bool has_storage_class(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
    case at::kFloat:
    case at::kHalf:
    case at::kBFloat16:
    case at::kLong:
    case at::kInt:
    case at::kShort:
    case at::kChar:
    case at::kByte:
    case at::kBool:
    case at::kComplexFloat:
    case at::kComplexDouble: return true;
    default: return false;
  }
}

// What is written for each tensor: on the CPU, without autograd, and no larger than it need be.
class Preparation {
 public:
  explicit Preparation(const NamedTensors& tensors) {
    for (const auto& [name, tensor] : tensors) {
      const at::ScalarType type = tensor.scalar_type();
      if (!has_storage_class(type))
        throw InvalidArgument(str("save_state_dict: tensor \"", printable(name), "\" is ", toString(type),
                                  ", which .pt files cannot hold; save it as .safetensors"));
      ++storages_.try_emplace(address(tensor), Storage{type, 0}).first->second.users;
    }
  }

  at::Tensor prepare(const at::Tensor& tensor) {
    at::Tensor& prepared = prepared_[{address(tensor), tensor.scalar_type(), tensor.storage_offset(),
                                      tensor.sizes().vec(), tensor.strides().vec()}];
    if (prepared.defined()) return prepared;
    prepared = tensor.detach();
    if (prepared.is_conj() || prepared.is_neg() || !prepared.is_cpu()) {
      prepared = prepared.resolve_conj().resolve_neg().cpu();
    } else if (must_leave_storage(tensor)) {
      prepared = prepared.clone();
    }
    return prepared;
  }

 private:
  struct Storage {
    at::ScalarType type;
    int users;
  };
  using Key = std::tuple<const void*, at::ScalarType, std::int64_t, std::vector<std::int64_t>,
                         std::vector<std::int64_t>>;

  static const void* address(const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); }

  // A lone view would carry the whole of its storage into the file, and a storage in a file has one dtype.
  bool must_leave_storage(const at::Tensor& tensor) const {
    const Storage& storage = storages_.at(address(tensor));
    return (storage.users == 1 && tensor.storage().nbytes() > tensor.nbytes()) ||
           storage.type != tensor.scalar_type();
  }

  std::map<const void*, Storage> storages_;
  std::map<Key, at::Tensor> prepared_;
};

// Gives each storage a number and keeps it for writing.
class Storages {
 public:
  std::string id_of(const at::Tensor& tensor) {
    const auto [found, is_new] = ids_.try_emplace(tensor.storage().unsafeGetStorageImpl(), storages_.size());
    if (is_new) storages_.push_back(tensor.storage());
    return std::to_string(found->second);
  }
  const std::vector<at::Storage>& all() const { return storages_; }

 private:
  std::map<const void*, std::size_t> ids_;
  std::vector<at::Storage> storages_;
};

std::string pickle(const NamedTensors& tensors, Storages& storages) {
  c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
  Preparation preparation(tensors);
  for (const auto& [name, tensor] : tensors) {
    if (dict.contains(name))
      throw InvalidArgument(str("save_state_dict: the name \"", printable(name), "\" occurs twice"));
    dict.insert(name, preparation.prepare(tensor));
  }
  std::string text;
  torch::jit::Pickler pickler([&](const char* data, std::size_t size) { text.append(data, size); }, nullptr,
                              nullptr, nullptr,
                              [&](const at::Tensor& tensor) { return storages.id_of(tensor); },
                              /*tag_aggregates=*/false);
  pickler.protocol();
  pickler.pushIValue(dict);
  pickler.stop();
  return text;
}

}  // namespace

void write_pt_file(const std::string& path, const NamedTensors& tensors) {
  Storages storages;
  const std::string data_pkl = pickle(tensors, storages);
  constexpr std::string_view ENDIANNESS = "little";

  // A failure must neither pass through the zip writer's C code nor be reported to it: its destructor would
  // finish the archive, fail again and end the process. So it writes on, into nothing.
  AtomicFile file(path);
  std::exception_ptr failure;
  const auto write = [&](const void* data, std::size_t size) -> std::size_t {
    try {
      if (!failure) file.write({static_cast<const std::byte*>(data), size});
    } catch (...) {
      failure = std::current_exception();
    }
    return size;
  };
  caffe2::serialize::PyTorchStreamWriter archive(write);
  archive.writeRecord("data.pkl", data_pkl.data(), data_pkl.size());
  archive.writeRecord("byteorder", ENDIANNESS.data(), ENDIANNESS.size());
  for (std::size_t i = 0; i < storages.all().size() && !failure; ++i)
    archive.writeRecord(str("data/", i), storages.all()[i].data(), storages.all()[i].nbytes());
  archive.writeEndOfFile();
  if (failure) std::rethrow_exception(failure);
  file.commit();
}

}  // namespace lockstep

#include "lockstep/tensor/pt_file.h"

#include <ATen/Tensor.h>
#include <ATen/ops/empty.h>

#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/formats/pt_reader.h"
#include "lockstep/formats/pt_writer.h"
#include "lockstep/tensor/dtype_words.h"

namespace lockstep {
namespace {

// Prepares each tensor for the file: on the CPU, without autograd, and without storage that it does not need.
class Preparation {
 public:
  explicit Preparation(const NamedTensors& tensors) {
    for (const auto& [name, tensor] : tensors) {
      if (dtype_word(tensor.scalar_type()).empty())
        throw InvalidArgument(str("save_state_dict: tensor ", in_quotes(name), " is ",
                                  toString(tensor.scalar_type()), ", which .pt files cannot hold"));
      ++storages_.try_emplace(address(tensor), Storage{tensor.scalar_type(), 0}).first->second.users;
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

  // A single view would carry its whole storage into the file. And a storage in a file has one dtype.
  bool must_leave_storage(const at::Tensor& tensor) const {
    const Storage& storage = storages_.at(address(tensor));
    return (storage.users == 1 && tensor.storage().nbytes() > tensor.nbytes()) ||
           storage.type != tensor.scalar_type();
  }

  std::map<const void*, Storage> storages_;
  std::map<Key, at::Tensor> prepared_;
};

}  // namespace

void write_pt_file(const std::string& path, const NamedTensors& tensors) {
  Preparation preparation(tensors);
  std::map<const void*, std::size_t> numbers;
  std::vector<at::Storage> storages;
  std::vector<std::uint64_t> sizes;
  std::vector<PtEntry> entries;
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor prepared = preparation.prepare(tensor);
    const auto [found, is_new] =
        numbers.try_emplace(prepared.storage().unsafeGetStorageImpl(), storages.size());
    if (is_new) {
      storages.push_back(prepared.storage());
      sizes.push_back(prepared.storage().nbytes());
    }
    entries.push_back({name, std::string(dtype_word(prepared.scalar_type())), prepared.sizes().vec(),
                       prepared.strides().vec(), found->second,
                       static_cast<std::uint64_t>(prepared.storage_offset())});
  }
  PtWriter writer(path, std::move(entries), std::move(sizes));
  for (const at::Storage& storage : storages)
    writer.write({static_cast<const std::byte*>(storage.data()), storage.nbytes()});
  writer.commit();
}

NamedTensors read_pt_file(const std::string& path) {
  const PtReader file(path);
  std::vector<at::Tensor> storages(file.storages().size());
  NamedTensors tensors;
  for (const PtTensor& stored : file.tensors()) {
    at::Tensor& bytes = storages[stored.storage];
    if (!bytes.defined()) {
      bytes = at::empty({static_cast<std::int64_t>(file.storages()[stored.storage].size)}, at::kByte);
      file.read_storage(stored.storage, {static_cast<std::byte*>(bytes.mutable_data_ptr()), bytes.nbytes()});
    }
    at::Tensor tensor = at::empty({0}, at::TensorOptions(dtype_of_word(stored.dtype)));
    tensor.set_(bytes.storage(), static_cast<std::int64_t>(stored.offset), stored.shape, stored.strides);
    if (stored.conjugate) tensor = tensor.conj().resolve_conj();
    if (stored.negative) tensor = tensor.neg();
    tensors.emplace_back(stored.name, tensor);
  }
  return tensors;
}

}  // namespace lockstep

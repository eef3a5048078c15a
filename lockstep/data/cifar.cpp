#include "lockstep/data/cifar.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/formats/cifar_records.h"

namespace lockstep {
namespace {

constexpr int MOST_TRAIN_FILES = 5;

// Folder names in the archives of the binary versions.
constexpr const char* CIFAR10_FOLDER = "cifar-10-batches-bin";
constexpr const char* CIFAR100_FOLDER = "cifar-100-binary";

// Reads all files, one after the other.
CifarRecords read_files(const char* dataset, const std::string& directory, const char* below,
                        const std::vector<std::string>& files, const std::vector<int>& classes) {
  CifarRecords all;
  const std::string found = data_folder(directory, {below}, files);
  const std::string& folder = found.empty() ? directory : found;  // the error then names the missing files
  for (const std::string& file : files) {
    CifarRecords records = read_cifar_records(existing_data_file(dataset, folder, file), classes);
    all.count += records.count;
    all.labels.insert(all.labels.end(), records.labels.begin(), records.labels.end());
    all.pixels.insert(all.pixels.end(), records.pixels.begin(), records.pixels.end());
  }
  return all;
}

at::Tensor images_of(const CifarRecords& records) {
  at::Tensor images = at::empty({records.count, 3, 32, 32}, at::TensorOptions(at::kByte));
  std::copy(records.pixels.begin(), records.pixels.end(), images.mutable_data_ptr<std::uint8_t>());
  return images;
}

// Label number `which` of `per_record` of each record.
at::Tensor targets_of(const CifarRecords& records, std::size_t which, std::size_t per_record) {
  at::Tensor targets = at::empty({records.count}, at::TensorOptions(at::kLong));
  auto* const out = targets.mutable_data_ptr<std::int64_t>();
  for (std::size_t i = 0; which + i * per_record < records.labels.size(); ++i)
    out[i] = records.labels[which + i * per_record];
  return targets;
}

std::vector<std::string> cifar10_files(Split split, int train_files) {
  if (train_files < 1 || train_files > MOST_TRAIN_FILES)
    throw InvalidArgument(str("CIFAR10: train_files is ", train_files, ", expected 1 to ", MOST_TRAIN_FILES));
  if (split == Split::TEST) return {"test_batch.bin"};
  std::vector<std::string> files;
  for (int i = 1; i <= train_files; ++i) files.push_back(str("data_batch_", i, ".bin"));
  return files;
}

}  // namespace

CIFAR10::CIFAR10(const std::string& directory, Split split, const CIFAR10Options& options)
    : CIFAR10(read_files("CIFAR10", directory, CIFAR10_FOLDER, cifar10_files(split, options.train_files),
                         {CLASSES})) {}

CIFAR10::CIFAR10(const CifarRecords& records)
    : ImageDataset("CIFAR10", images_of(records), targets_of(records, 0, 1), channels(MEAN, STD)) {}

CIFAR100::CIFAR100(const std::string& directory, Split split)
    : CIFAR100(read_files("CIFAR100", directory, CIFAR100_FOLDER,
                          {split == Split::TRAIN ? "train.bin" : "test.bin"}, {COARSE_CLASSES, CLASSES})) {}

CIFAR100::CIFAR100(const CifarRecords& records)
    : ImageDataset("CIFAR100", images_of(records), targets_of(records, 1, 2), channels(MEAN, STD)),
      coarse_targets_(targets_of(records, 0, 2)) {}

std::string find_cifar10(const std::string& directory, const std::string& checkout) {
  return find_data_folder("cifar10", {"data_batch_1.bin", "test_batch.bin"},
                          {.directory = directory, .checkout = checkout, .below = {CIFAR10_FOLDER}},
                          "`scripts/download cifar10` fetches it");
}

std::string find_cifar100(const std::string& directory, const std::string& checkout) {
  return find_data_folder("cifar100", {"train.bin", "test.bin"},
                          {.directory = directory, .checkout = checkout, .below = {CIFAR100_FOLDER}},
                          "`scripts/download cifar100` fetches it");
}

}  // namespace lockstep

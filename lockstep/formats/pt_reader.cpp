#include "lockstep/formats/pt_reader.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/formats/tensor_dtypes.h"
#include "lockstep/formats/tensor_strides.h"
#include "lockstep/formats/zip_reader.h"

namespace lockstep {
namespace {

static_assert(std::endian::native == std::endian::little, "the bytes of a .pt file are copied as they are");

constexpr std::string_view DATA_PKL = "/data.pkl";
constexpr std::size_t RECORD_NAME_SHOWN = 100;
constexpr std::size_t PIECE = 1 << 20;
constexpr std::size_t LONGEST_BYTE_ORDER = 16;

std::vector<std::byte> read_record(const PlainFile& file, const ZipRecord& record, std::uint64_t limit) {
  expect_stored(record);
  if (record.size > limit)
    throw FormatError(str("its record ", in_quotes(record.name, RECORD_NAME_SHOWN), " has ", record.size,
                          " bytes; at most ", limit, " are read"));
  std::vector<std::byte> bytes(record.size);
  if (file.read_at(record.offset, bytes) < bytes.size()) throw FormatError("it was cut while it was read");
  return bytes;
}

void refuse_other_formats(const PlainFile& file, std::uint64_t begin, std::uint64_t size) {
  std::array<std::byte, 4> magic{};
  if (size < magic.size() || file.read_at(begin, magic) < magic.size()) throw FormatError("it is cut");
  constexpr auto PICKLE_PROTO = std::byte{0x80};
  if (magic[0] == PICKLE_PROTO)
    throw FormatError(
        "it is a bare pickle, as torch.save wrote before PyTorch 1.6; write it again in Python: "
        "torch.save(torch.load(path, weights_only=True), path)");
}

// Returns the folder of the archive in which all records lie.
std::string folder_of(const ZipReader& zip) {
  std::string folder;
  for (const ZipRecord& record : zip.records()) {
    if (!record.name.ends_with(DATA_PKL)) continue;
    const std::string before = record.name.substr(0, record.name.size() - DATA_PKL.size());
    if (before.empty() || before.find('/') != std::string::npos) continue;
    if (!folder.empty()) throw FormatError("it has two records data.pkl");
    folder = before;
  }
  if (folder.empty()) throw FormatError("it has no record data.pkl, so torch.save did not write it");
  if (zip.find(folder + "/constants.pkl") != nullptr)
    throw FormatError(
        "it is a TorchScript archive, as torch.jit.save and libtorch's torch::save write; write its state "
        "dict "
        "in Python: torch.save(torch.jit.load(path).state_dict(), path)");
  return folder;
}

void check_byte_order(const PlainFile& file, const ZipReader& zip, const std::string& folder) {
  const ZipRecord* const record = zip.find(folder + "/byteorder");
  if (record == nullptr) return;  // an old file: always little-endian
  const std::vector<std::byte> bytes = read_record(file, *record, LONGEST_BYTE_ORDER);
  const std::string_view order(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (order != "little")
    throw FormatError(str("its byte order is ", in_quotes(order), "; only little-endian files are read"));
}

}  // namespace

PtReader::PtReader(const std::string& path) : file_(std::make_shared<const PlainFile>(path)) {
  open(0, file_->size());
}

PtReader::PtReader(std::shared_ptr<const PlainFile> file, std::uint64_t begin, std::uint64_t size)
    : file_(std::move(file)) {
  open(begin, size);
}

void PtReader::open(std::uint64_t begin, std::uint64_t size) {
  try {
    refuse_other_formats(*file_, begin, size);
    const ZipReader zip(*file_, begin, size);
    const std::string folder = folder_of(zip);
    check_byte_order(*file_, zip, folder);
    state_ = pickled_state(read_record(*file_, *zip.find(folder + std::string(DATA_PKL)), PICKLE_MAX_BYTES));
    for (const PickledStorage& storage : state_.storages) {
      const ZipRecord* const record = zip.find(str(folder, "/data/", storage.key));
      const std::string shown = in_quotes(storage.key, RECORD_NAME_SHOWN);
      if (record == nullptr) throw FormatError(str("its storage ", shown, " is missing"));
      expect_stored(*record);
      if (record->size != storage.size)
        throw FormatError(
            str("its storage ", shown, " has ", record->size, " bytes, its tensors expect ", storage.size));
      offsets_.push_back(record->offset);
    }
  } catch (const FormatError& defect) {
    throw FormatError(str(".pt file ", in_quotes(file_->path()), ": ", defect.what()));
  }
}

void PtReader::read_at(std::size_t storage, std::uint64_t offset, std::span<std::byte> out) const {
  if (file_->read_at(offsets_.at(storage) + offset, out) < out.size())
    throw FormatError(str(".pt file ", in_quotes(path()), ": it was cut after it had been opened"));
}

void PtReader::read_storage(std::size_t number, std::span<std::byte> out) const {
  if (out.size() != storages().at(number).size)
    throw InvalidArgument(str("PtReader::read_storage: storage ", number, " of ", in_quotes(path()), " has ",
                              storages()[number].size, " bytes, the buffer ", out.size()));
  read_at(number, 0, out);
}

void PtReader::read(const PtTensor& tensor, std::span<std::byte> out) const {
  if (out.size() != size_of(tensor))
    throw InvalidArgument(str("PtReader::read: tensor ", in_quotes(tensor.name), " has ", size_of(tensor),
                              " bytes, the buffer ", out.size()));
  std::size_t done = 0;
  read_pieces(tensor, [&](std::span<const std::byte> piece) {
    std::memcpy(out.data() + done, piece.data(), piece.size());
    done += piece.size();
  });
}

void PtReader::read_pieces(const PtTensor& tensor,
                           const std::function<void(std::span<const std::byte>)>& take) const {
  const std::uint64_t size = size_of(tensor);
  if (size == 0) return;
  const std::uint64_t element = find_dtype(tensor.dtype)->size;
  const std::uint64_t begin = tensor.offset * element;
  const auto give = [&](std::span<std::byte> piece) {
    apply_sign_bits(tensor, piece);
    take(piece);
  };
  if (is_contiguous(tensor)) {
    std::vector<std::byte> piece(std::min<std::uint64_t>(size, PIECE));
    for (std::uint64_t done = 0; done < size; done += piece.size()) {
      piece.resize(std::min<std::uint64_t>(size - done, PIECE));
      read_at(tensor.storage, begin + done, piece);
      give(piece);
    }
    return;
  }
  std::vector<std::byte> part(elements_spanned(tensor) *
                              element);  // at most as large as the storage, which is in the file
  read_at(tensor.storage, begin, part);
  gather_rows(tensor, part, PIECE, give);
}

}  // namespace lockstep

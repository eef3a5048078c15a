#include "lockstep/formats/dcp_reader.h"

#include <span>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/formats/box_bytes.h"
#include "lockstep/formats/dcp_metadata.h"
#include "lockstep/formats/pt_reader.h"
#include "lockstep/formats/tensor_dtypes.h"
#include "lockstep/os/folder.h"

namespace lockstep {
namespace {

constexpr std::string_view METADATA_NAME = ".metadata";

}  // namespace

bool is_dcp_folder(const std::string& folder) { return is_file(str(folder, '/', METADATA_NAME)); }

DcpReader::DcpReader(std::string folder) : folder_(std::move(folder)) {
  const std::string path = str(folder_, '/', METADATA_NAME);
  const std::string bytes = read_plain_file(path);
  try {
    DcpMetadata metadata = parse_dcp_metadata(std::as_bytes(std::span(bytes)));
    tensors_ = std::move(metadata.tensors);
    skipped_ = std::move(metadata.skipped);
  } catch (const FormatError& defect) {
    throw FormatError(str("metadata ", in_quotes(path), " of a distributed checkpoint: ", defect.what()));
  }
}

std::vector<std::byte> DcpReader::read(const DcpTensor& tensor) {
  const std::size_t element = find_dtype(tensor.dtype)->size;
  std::uint64_t elements = 1;
  for (const std::int64_t size : tensor.shape) elements *= static_cast<std::uint64_t>(size);
  // Before memory is taken, each chunk is checked.
  std::vector<std::vector<std::byte>> chunks;
  for (const DcpChunk& chunk : tensor.chunks) chunks.push_back(read_chunk(tensor, chunk));
  std::vector<std::byte> whole(elements * element);
  for (std::size_t i = 0; i < chunks.size(); ++i)
    place_box(chunks[i], tensor.chunks[i].offsets, tensor.chunks[i].sizes, tensor.shape, element, whole);
  return whole;
}

std::vector<std::byte> DcpReader::read_chunk(const DcpTensor& tensor, const DcpChunk& chunk) {
  std::shared_ptr<const PlainFile>& file = files_[chunk.file];
  if (!file) file = std::make_shared<const PlainFile>(str(folder_, '/', chunk.file));
  if (chunk.begin > file->size() || chunk.length > file->size() - chunk.begin)
    throw FormatError(str(in_quotes(file->path()), " ends inside tensor ", in_quotes(tensor.name)));
  const PtReader item(file, chunk.begin, chunk.length);
  const bool is_it = item.tensors().size() == 1 && item.tensors()[0].name.empty() &&
                     item.tensors()[0].dtype == tensor.dtype && item.tensors()[0].shape == chunk.sizes;
  if (!is_it)
    throw FormatError(str(in_quotes(file->path()), ": the item at byte ", chunk.begin,
                          " is not the chunk of tensor ", in_quotes(tensor.name),
                          " that the metadata names"));
  std::vector<std::byte> bytes(size_of(item.tensors()[0]));
  item.read(item.tensors()[0], bytes);
  return bytes;
}

}  // namespace lockstep

// Parses the file ".metadata" of a torch.distributed.checkpoint: its tensors, and the places of their chunks.
// Pure.
//
//   const DcpMetadata metadata = parse_dcp_metadata(bytes);
//
// Throws FormatError without a file name.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "lockstep/formats/dcp_reader.h"

namespace lockstep {

struct DcpMetadata {
  std::vector<DcpTensor> tensors;    // by name
  std::vector<std::string> skipped;  // names of entries that are not tensors
};

DcpMetadata parse_dcp_metadata(std::span<const std::byte> pickle);

}  // namespace lockstep

// The file ".metadata" of a torch.distributed.checkpoint: which tensors it has, and where their chunks lie.
// Pure.
//
//   const DcpMetadata metadata = parse_dcp_metadata(bytes);
//
// Throws FormatError, which names no file.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "lockstep/formats/dcp_reader.h"

namespace lockstep {

struct DcpMetadata {
  std::vector<DcpTensor> tensors;    // by name
  std::vector<std::string> skipped;  // names of what is no tensor
};

DcpMetadata parse_dcp_metadata(std::span<const std::byte> pickle);

}  // namespace lockstep

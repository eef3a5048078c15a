// Facts about the buffers of a Request. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "lockstep/comm/backend.h"

namespace lockstep::shared {

// Whether rank `own` writes a result over `data`, in a verb whose ranks have parts for each other. Such data
// cannot be lent. A rank's own part may already be in place.
bool is_overwritten(const Request& request, int own, std::span<const std::byte> data);

// Number of bytes that rank `own` expects from rank `from`.
std::size_t bytes_expected(const Request& request, int own, int from);

// Number of bytes that the call of `rank` must post, if rank `own` knows it from its own call (all_gather,
// and gather on the root).
std::optional<std::size_t> bytes_to_be_posted(const Request& request, int own, int rank);

}  // namespace lockstep::shared

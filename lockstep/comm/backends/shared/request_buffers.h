// Facts about the buffers of a Request that the collectives of this room need. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "lockstep/comm/backend.h"

namespace lockstep::shared {

// Whether rank `own` writes a result over `data`, in one of the verbs whose ranks have parts for each other:
// then it cannot be lent. A rank may find its own part in place already.
bool is_overwritten(const Request& request, int own, std::span<const std::byte> data);

// Bytes that `from` has for rank `own`.
std::size_t bytes_expected(const Request& request, int own, int from);

// Bytes that the call of `rank` must be about, where rank `own` knows that from its own call (all_gather, and
// gather on the root).
std::optional<std::size_t> bytes_to_be_posted(const Request& request, int own, int rank);

}  // namespace lockstep::shared

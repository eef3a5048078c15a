#include "lockstep/comm/backends/messages/wire.h"

#include "lockstep/base/str.h"

namespace lockstep::messages {
namespace {

std::size_t largest_payload(Kind kind) {
  switch (kind) {
    case Kind::MESSAGE: return EAGER_LIMIT;
    case Kind::CHUNK: return CHUNK_BYTES;
    case Kind::FAILURE: return LARGEST_TEXT;
    case Kind::OFFER: return sizeof(std::uint64_t);
    case Kind::ACCEPT:
    case Kind::TAKEN:
    case Kind::GIVEN:
    case Kind::CALL:
    case Kind::CREDIT:
    case Kind::GOODBYE: break;
  }
  return 0;
}

}  // namespace

void Header::set(const Call& call) {
  verb = static_cast<std::uint8_t>(call.verb);
  dtype = static_cast<std::uint8_t>(call.dtype);
  op = static_cast<std::uint8_t>(call.op);
  purpose = static_cast<std::uint8_t>(call.purpose);
  root = call.root;
  count = call.count;
}

std::string check(const Header& header) {
  if (header.magic != Header().magic || header.version != Header().version)
    return "it does not begin with the magic number and version of a frame";
  if (header.kind < Kind::MESSAGE || header.kind > Kind::GOODBYE)
    return str(static_cast<int>(header.kind), " is not a kind of frame");
  if (header.verb >= VERB_COUNT || header.dtype >= DTYPE_COUNT || header.op >= REDUCE_OP_COUNT ||
      header.purpose >= PURPOSE_COUNT)
    return str("one of these is unknown: verb ", static_cast<int>(header.verb), ", dtype ",
               static_cast<int>(header.dtype), ", op ", static_cast<int>(header.op), ", purpose ",
               static_cast<int>(header.purpose));
  if (header.payload > largest_payload(header.kind))
    return str("a payload of ", header.payload, " bytes is above the limit of ",
               largest_payload(header.kind));
  if (header.kind == Kind::MESSAGE && header.payload != header.bytes)
    return str("a message of ", header.bytes, " bytes has a payload of ", header.payload);
  return "";
}

}  // namespace lockstep::messages

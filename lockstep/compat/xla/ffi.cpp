#include "lockstep/compat/xla/ffi.h"

#include <string_view>

namespace lockstep::compat::xla {

bool answer_metadata(CallFrame& frame) {
  if (frame.extension_start == nullptr || frame.extension_start->type != METADATA) return false;
  Metadata& asked = *reinterpret_cast<MetadataExtension*>(frame.extension_start)->metadata;
  asked.api_version = {sizeof(ApiVersion), nullptr, MAJOR, MINOR};
  asked.traits = 0;
  asked.state_type_id = 0;
  return true;
}

XlaError* error_of(const CallFrame& frame, const Failure& failure) {
  ErrorCreateArgs given{sizeof(ErrorCreateArgs), nullptr, failure.text.c_str(), failure.code};
  return frame.api->error_create(&given);
}

const Buffer& argument(const CallFrame& frame, std::int64_t index) {
  return *static_cast<const Buffer*>(frame.args.places[index]);
}

const Buffer& result(const CallFrame& frame, std::int64_t index) {
  return *static_cast<const Buffer*>(frame.rets.places[index]);
}

std::int64_t number(const CallFrame& frame, const char* name) {
  for (std::int64_t i = 0; i < frame.attrs.size; ++i) {
    if (std::string_view(frame.attrs.names[i]->ptr, frame.attrs.names[i]->len) != name) continue;
    const auto& found = *static_cast<const Scalar*>(frame.attrs.values[i]);
    if (frame.attrs.types[i] == SCALAR && found.dtype == S64)
      return *static_cast<const std::int64_t*>(found.value);
  }
  throw Failure{INVALID_ARGUMENT, std::string("the call has no attribute ") + name + " that is an int64"};
}

}  // namespace lockstep::compat::xla

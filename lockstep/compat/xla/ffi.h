// The part of XLA's foreign function interface that our handlers need, declared here, so that nothing of JAX
// is needed to build them. XLA promises that an interface of one version works for at least a year, and asks
// each handler for its version. tests/python/xla_headers.cpp compares the declarations with those of an
// installed JAX.
//
//   XlaError* handler(CallFrame* frame) {
//     if (answer_metadata(*frame)) return nullptr;            // XLA asks for the version before it calls
//     const Buffer& input = argument(*frame, 0);
//     ...
//   }
//
// Source      xla/ffi/api/c_api.h, version 0.3 (jaxlib 0.10)
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "lockstep/compat/status_codes.h"

namespace lockstep::compat::xla {

struct Api;
struct XlaError;

struct Extension {
  std::size_t struct_size;
  int type;
  Extension* next;
};

struct ApiVersion {
  std::size_t struct_size;
  Extension* extension_start;
  int major_version;
  int minor_version;
};

struct Buffer {
  std::size_t struct_size;
  Extension* extension_start;
  int dtype;
  void* data;
  std::int64_t rank;
  std::int64_t* dims;
};

struct ByteSpan {
  const char* ptr;
  std::size_t len;
};

struct Scalar {
  int dtype;
  void* value;
};

struct Buffers {  // XLA_FFI_Args and XLA_FFI_Rets
  std::size_t struct_size;
  Extension* extension_start;
  std::int64_t size;
  int* types;
  void** places;
};

struct Attributes {
  std::size_t struct_size;
  Extension* extension_start;
  std::int64_t size;
  int* types;
  ByteSpan** names;
  void** values;
};

struct CallFrame {
  std::size_t struct_size;
  Extension* extension_start;
  const Api* api;
  void* context;
  int stage;
  Buffers args;
  Buffers rets;
  Attributes attrs;
  void* future;
};

struct ErrorCreateArgs {
  std::size_t struct_size;
  Extension* extension_start;
  const char* message;
  int code;
};

struct Metadata {
  std::size_t struct_size;
  ApiVersion api_version;
  std::uint32_t traits;
  std::int64_t state_type_id;
};

struct MetadataExtension {
  Extension extension_base;
  Metadata* metadata;
};

struct Api {
  std::size_t struct_size;
  Extension* extension_start;
  ApiVersion api_version;
  const void* internal_api;
  XlaError* (*error_create)(ErrorCreateArgs*);
};

constexpr int MAJOR = 0, MINOR = 3, METADATA = 1, EXECUTE = 3, SCALAR = 3, S64 = 5;

struct Failure {
  int code = INTERNAL;
  std::string text;
};

// Whether the call asks for the handler's version; then it is filled in.
bool answer_metadata(CallFrame& frame);
XlaError* error_of(const CallFrame& frame, const Failure& failure);
const Buffer& argument(const CallFrame& frame, std::int64_t index);
const Buffer& result(const CallFrame& frame, std::int64_t index);
// An attribute that is a number of 64 bits. Throws Failure if there is none.
std::int64_t number(const CallFrame& frame, const char* name);

}  // namespace lockstep::compat::xla

// Compares what compat/xla/ffi.h declares with the header of an installed JAX. It is compiled alone, by
// tensorflow_headers_test.py.
#include <cstddef>

#include "lockstep/compat/xla/ffi.h"
#include "xla/ffi/api/c_api.h"

namespace {

namespace ours = lockstep::compat::xla;
namespace codes = lockstep::compat;

#define LOCKSTEP_SAME_SIZE(mine, theirs) static_assert(sizeof(ours::mine) == sizeof(theirs), #mine);
#define LOCKSTEP_SAME_PLACE(mine, theirs, field, their_field)                   \
  static_assert(offsetof(ours::mine, field) == offsetof(theirs, their_field) && \
                    sizeof(ours::mine::field) == sizeof(theirs::their_field),   \
                #mine "." #field);

LOCKSTEP_SAME_SIZE(Extension, XLA_FFI_Extension_Base)
LOCKSTEP_SAME_PLACE(Extension, XLA_FFI_Extension_Base, type, type)
LOCKSTEP_SAME_SIZE(ApiVersion, XLA_FFI_Api_Version)
LOCKSTEP_SAME_PLACE(ApiVersion, XLA_FFI_Api_Version, minor_version, minor_version)
LOCKSTEP_SAME_SIZE(Buffer, XLA_FFI_Buffer)
LOCKSTEP_SAME_PLACE(Buffer, XLA_FFI_Buffer, dtype, dtype)
LOCKSTEP_SAME_PLACE(Buffer, XLA_FFI_Buffer, data, data)
LOCKSTEP_SAME_PLACE(Buffer, XLA_FFI_Buffer, rank, rank)
LOCKSTEP_SAME_PLACE(Buffer, XLA_FFI_Buffer, dims, dims)
LOCKSTEP_SAME_SIZE(ByteSpan, XLA_FFI_ByteSpan)
LOCKSTEP_SAME_SIZE(Scalar, XLA_FFI_Scalar)
LOCKSTEP_SAME_PLACE(Scalar, XLA_FFI_Scalar, value, value)
LOCKSTEP_SAME_SIZE(Buffers, XLA_FFI_Args)
LOCKSTEP_SAME_PLACE(Buffers, XLA_FFI_Args, places, args)
LOCKSTEP_SAME_PLACE(Buffers, XLA_FFI_Rets, places, rets)
LOCKSTEP_SAME_SIZE(Attributes, XLA_FFI_Attrs)
LOCKSTEP_SAME_PLACE(Attributes, XLA_FFI_Attrs, names, names)
LOCKSTEP_SAME_PLACE(Attributes, XLA_FFI_Attrs, values, attrs)
LOCKSTEP_SAME_SIZE(CallFrame, XLA_FFI_CallFrame)
LOCKSTEP_SAME_PLACE(CallFrame, XLA_FFI_CallFrame, api, api)
LOCKSTEP_SAME_PLACE(CallFrame, XLA_FFI_CallFrame, stage, stage)
LOCKSTEP_SAME_PLACE(CallFrame, XLA_FFI_CallFrame, args, args)
LOCKSTEP_SAME_PLACE(CallFrame, XLA_FFI_CallFrame, rets, rets)
LOCKSTEP_SAME_PLACE(CallFrame, XLA_FFI_CallFrame, attrs, attrs)
LOCKSTEP_SAME_SIZE(ErrorCreateArgs, XLA_FFI_Error_Create_Args)
LOCKSTEP_SAME_PLACE(ErrorCreateArgs, XLA_FFI_Error_Create_Args, code, errc)
LOCKSTEP_SAME_SIZE(Metadata, XLA_FFI_Metadata)
LOCKSTEP_SAME_PLACE(Metadata, XLA_FFI_Metadata, state_type_id, state_type_id)
LOCKSTEP_SAME_PLACE(MetadataExtension, XLA_FFI_Metadata_Extension, metadata, metadata)
LOCKSTEP_SAME_PLACE(Api, XLA_FFI_Api, error_create, XLA_FFI_Error_Create)

static_assert(ours::MAJOR == XLA_FFI_API_MAJOR && ours::MINOR <= XLA_FFI_API_MINOR);
static_assert(ours::METADATA == XLA_FFI_Extension_Metadata &&
              ours::EXECUTE == XLA_FFI_ExecutionStage_EXECUTE && ours::SCALAR == XLA_FFI_AttrType_SCALAR &&
              ours::S64 == XLA_FFI_DataType_S64);
static_assert(codes::INVALID_ARGUMENT == XLA_FFI_Error_Code_INVALID_ARGUMENT &&
              codes::ABORTED == XLA_FFI_Error_Code_ABORTED &&
              codes::DEADLINE_EXCEEDED == XLA_FFI_Error_Code_DEADLINE_EXCEEDED &&
              codes::INTERNAL == XLA_FFI_Error_Code_INTERNAL &&
              codes::FAILED_PRECONDITION == XLA_FFI_Error_Code_FAILED_PRECONDITION &&
              codes::UNAVAILABLE == XLA_FFI_Error_Code_UNAVAILABLE);
static_assert(XLA_FFI_DataType_PRED == 1 && XLA_FFI_DataType_S8 == 2 && XLA_FFI_DataType_S16 == 3 &&
              XLA_FFI_DataType_S32 == 4 && XLA_FFI_DataType_U8 == 6 && XLA_FFI_DataType_U16 == 7 &&
              XLA_FFI_DataType_U32 == 8 && XLA_FFI_DataType_U64 == 9 && XLA_FFI_DataType_F16 == 10 &&
              XLA_FFI_DataType_F32 == 11 && XLA_FFI_DataType_F64 == 12 && XLA_FFI_DataType_C64 == 15 &&
              XLA_FFI_DataType_BF16 == 16 && XLA_FFI_DataType_C128 == 18);

}  // namespace

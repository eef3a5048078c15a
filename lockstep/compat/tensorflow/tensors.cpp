#include "lockstep/compat/tensorflow/tensors.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "lockstep/c/error.h"
#include "lockstep/c/types.h"

namespace lockstep::compat::tensorflow {
namespace {

struct Type {
  DataType type;
  int dtype;
  std::size_t bytes;
};

constexpr std::array TYPES{
    Type{1, LOCKSTEP_FLOAT32, 4},   Type{2, LOCKSTEP_FLOAT64, 8},   Type{3, LOCKSTEP_INT32, 4},
    Type{4, LOCKSTEP_UINT8, 1},     Type{5, LOCKSTEP_INT16, 2},     Type{6, LOCKSTEP_INT8, 1},
    Type{8, LOCKSTEP_COMPLEX64, 8}, Type{INT64, LOCKSTEP_INT64, 8}, Type{10, LOCKSTEP_BOOL, 1},
    Type{14, LOCKSTEP_BFLOAT16, 2}, Type{17, LOCKSTEP_UINT16, 2},   Type{18, LOCKSTEP_COMPLEX128, 16},
    Type{19, LOCKSTEP_FLOAT16, 2},  Type{22, LOCKSTEP_UINT32, 4},   Type{23, LOCKSTEP_UINT64, 8}};

const Type& row_of(DataType type) {
  const auto* const found =
      std::find_if(TYPES.begin(), TYPES.end(), [&](const Type& one) { return one.type == type; });
  if (found == TYPES.end())
    throw Failure{INVALID_ARGUMENT, "there are no collectives of TensorFlow's type " + std::to_string(type)};
  return *found;
}

}  // namespace

const char* const TYPE_NAMES =
    "float, double, int32, uint8, int16, int8, complex64, int64, bool, bfloat16, uint16, complex128, half, "
    "uint32, uint64";

void check(int code) {
  if (code != LOCKSTEP_OK) throw Failure{status_code_of(code), lockstep_error_text()};
}

void fail(TF_OpKernelContext* context, const Failure& failure) {
  const Status status;
  api().TF_SetStatus(status.get(), failure.code, failure.text.c_str());
  api().TF_OpKernelContext_Failure(context, status.get());
}

void fail(TF_OpKernelConstruction* context, const Failure& failure) {
  const Status status;
  api().TF_SetStatus(status.get(), failure.code, failure.text.c_str());
  api().TF_OpKernelConstruction_Failure(context, status.get());
}

void Status::check() const {
  const Code code = api().TF_GetCode(get());
  if (code != OK) throw Failure{code, api().TF_Message(get())};
}

std::vector<std::int64_t> Tensor::shape() const {
  std::vector<std::int64_t> dims(static_cast<std::size_t>(api().TF_NumDims(get())));
  for (std::size_t i = 0; i < dims.size(); ++i) dims[i] = api().TF_Dim(get(), static_cast<int>(i));
  return dims;
}

Tensor input_of(TF_OpKernelContext* context, int index) {
  const Status status;
  TF_Tensor* found = nullptr;
  api().TF_GetInput(context, index, &found, status.get());
  status.check();
  return Tensor(found);
}

Tensor new_output(TF_OpKernelContext* context, int index, DataType type,
                  const std::vector<std::int64_t>& shape) {
  const Status status;
  std::size_t bytes = element_size(type);
  for (const std::int64_t dim : shape) bytes *= static_cast<std::size_t>(dim);
  Tensor made(api().TF_AllocateOutput(context, index, type, shape.data(), static_cast<int>(shape.size()),
                                      bytes, status.get()));
  status.check();
  return made;
}

Tensor output_in_place_of(TF_OpKernelContext* context, int index) {
  const Status status;
  const std::vector<std::int64_t> shape = input_of(context, index).shape();
  int forwarded = -1;
  Tensor made(api().TF_ForwardInputOrAllocateOutput(
      context, &index, 1, index, shape.data(), static_cast<int>(shape.size()), &forwarded, status.get()));
  status.check();
  if (forwarded < 0 && made.bytes() > 0)
    std::memcpy(made.data(), input_of(context, index).data(), made.bytes());
  return made;
}

std::size_t element_size(DataType type) { return row_of(type).bytes; }

int dtype_of(DataType type) { return row_of(type).dtype; }

std::int64_t int_of(TF_OpKernelConstruction* context, const char* name) {
  const Status status;
  std::int64_t value = 0;
  api().TF_OpKernelConstruction_GetAttrInt64(context, name, &value, status.get());
  status.check();
  return value;
}

std::string text_of(TF_OpKernelConstruction* context, const char* name) {
  const Status status;
  std::int32_t elements = 0;
  std::int32_t bytes = 0;
  api().TF_OpKernelConstruction_GetAttrSize(context, name, &elements, &bytes, status.get());
  status.check();
  std::string text(static_cast<std::size_t>(std::max(bytes, 0)), '\0');
  api().TF_OpKernelConstruction_GetAttrString(context, name, text.data(), text.size(), status.get());
  status.check();
  return text;
}

}  // namespace lockstep::compat::tensorflow

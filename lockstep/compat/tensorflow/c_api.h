// The part of TensorFlow's C API that our operators need, declared here and looked up in the TensorFlow that
// the process has loaded. So one library serves every version of TensorFlow, and nothing of TensorFlow is
// needed to build it. tests/python/tensorflow_headers.cpp compares the declarations with those of an
// installed TensorFlow.
//
//   if (const std::string lacking = load(); !lacking.empty()) return lacking;   // "TF_GetInput"
//   TF_Status* const status = api().TF_NewStatus();
//
// Source      tensorflow/c/{ops,kernels,tf_tensor,tf_status,tf_datatype}.h of TensorFlow 2.21
// Threads     load() once, before any other use; then any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "lockstep/compat/status_codes.h"

// NOLINTBEGIN(readability-identifier-naming): TensorFlow's names
struct TF_AsyncOpKernelDoneCallback;
struct TF_KernelBuilder;
struct TF_OpDefinitionBuilder;
struct TF_OpKernelConstruction;
struct TF_OpKernelContext;
struct TF_ShapeHandle;
struct TF_ShapeInferenceContext;
struct TF_Tensor;
struct TSL_Status;

namespace lockstep::compat::tensorflow {

using TF_Status = TSL_Status;
using Code = int;      // TF_Code
using DataType = int;  // TF_DataType

using Create = void* (*)(TF_OpKernelConstruction*);
using Compute = void (*)(void* kernel, TF_OpKernelContext*);
using ComputeAsync = void (*)(void* kernel, TF_OpKernelContext*, TF_AsyncOpKernelDoneCallback*);
using Delete = void (*)(void* kernel);
using Deallocator = void (*)(void* data, std::size_t length, void* argument);
using InferShapes = void (*)(TF_ShapeInferenceContext*, TF_Status*);

// X(result, name, parameters)
#define LOCKSTEP_TENSORFLOW_FUNCTIONS(X)                                                                    \
  X(TF_Status*, TF_NewStatus, ())                                                                           \
  X(void, TF_DeleteStatus, (TF_Status*))                                                                    \
  X(void, TF_SetStatus, (TF_Status*, Code, const char*))                                                    \
  X(Code, TF_GetCode, (const TF_Status*))                                                                   \
  X(const char*, TF_Message, (const TF_Status*))                                                            \
  X(TF_OpDefinitionBuilder*, TF_NewOpDefinitionBuilder, (const char*))                                      \
  X(void, TF_OpDefinitionBuilderAddAttr, (TF_OpDefinitionBuilder*, const char*))                            \
  X(void, TF_OpDefinitionBuilderAddInput, (TF_OpDefinitionBuilder*, const char*))                           \
  X(void, TF_OpDefinitionBuilderAddOutput, (TF_OpDefinitionBuilder*, const char*))                          \
  X(void, TF_OpDefinitionBuilderSetIsStateful, (TF_OpDefinitionBuilder*, bool))                             \
  X(void, TF_OpDefinitionBuilderSetShapeInferenceFunction, (TF_OpDefinitionBuilder*, InferShapes))          \
  X(void, TF_RegisterOpDefinition, (TF_OpDefinitionBuilder*, TF_Status*))                                   \
  X(TF_KernelBuilder*, TF_NewKernelBuilder, (const char*, const char*, Create, Compute, Delete))            \
  X(TF_KernelBuilder*, TF_NewAsyncKernelBuilder, (const char*, const char*, Create, ComputeAsync, Delete))  \
  X(void, TF_RegisterKernelBuilder, (const char*, TF_KernelBuilder*, TF_Status*))                           \
  X(void, TF_OpKernelConstruction_Failure, (TF_OpKernelConstruction*, TF_Status*))                          \
  X(void, TF_OpKernelConstruction_GetAttrInt64,                                                             \
    (TF_OpKernelConstruction*, const char*, std::int64_t*, TF_Status*))                                     \
  X(void, TF_OpKernelConstruction_GetAttrSize,                                                              \
    (TF_OpKernelConstruction*, const char*, std::int32_t*, std::int32_t*, TF_Status*))                      \
  X(void, TF_OpKernelConstruction_GetAttrString,                                                            \
    (TF_OpKernelConstruction*, const char*, char*, std::size_t, TF_Status*))                                \
  X(int, TF_NumInputs, (TF_OpKernelContext*))                                                               \
  X(void, TF_GetInput, (TF_OpKernelContext*, int, TF_Tensor**, TF_Status*))                                 \
  X(void, TF_SetOutput, (TF_OpKernelContext*, int, const TF_Tensor*, TF_Status*))                           \
  X(void, TF_OpKernelContext_Failure, (TF_OpKernelContext*, TF_Status*))                                    \
  X(void, TF_RunAsyncOpKernelDoneCallback, (TF_AsyncOpKernelDoneCallback*))                                 \
  X(TF_Tensor*, TF_AllocateOutput,                                                                          \
    (TF_OpKernelContext*, int, DataType, const std::int64_t*, int, std::size_t, TF_Status*))                \
  X(TF_Tensor*, TF_ForwardInputOrAllocateOutput,                                                            \
    (TF_OpKernelContext*, const int*, int, int, const std::int64_t*, int, int*, TF_Status*))                \
  X(TF_Tensor*, TF_NewTensor, (DataType, const std::int64_t*, int, void*, std::size_t, Deallocator, void*)) \
  X(void, TF_DeleteTensor, (TF_Tensor*))                                                                    \
  X(DataType, TF_TensorType, (const TF_Tensor*))                                                            \
  X(int, TF_NumDims, (const TF_Tensor*))                                                                    \
  X(std::int64_t, TF_Dim, (const TF_Tensor*, int))                                                          \
  X(std::size_t, TF_TensorByteSize, (const TF_Tensor*))                                                     \
  X(std::int64_t, TF_TensorElementCount, (const TF_Tensor*))                                                \
  X(void*, TF_TensorData, (const TF_Tensor*))                                                               \
  X(TF_ShapeHandle*, TF_NewShapeHandle, ())                                                                 \
  X(void, TF_DeleteShapeHandle, (TF_ShapeHandle*))                                                          \
  X(std::int64_t, TF_ShapeInferenceContextNumInputs, (TF_ShapeInferenceContext*))                           \
  X(void, TF_ShapeInferenceContextGetInput, (TF_ShapeInferenceContext*, int, TF_ShapeHandle*, TF_Status*))  \
  X(void, TF_ShapeInferenceContextSetOutput, (TF_ShapeInferenceContext*, int, TF_ShapeHandle*, TF_Status*)) \
  X(void, TF_ShapeInferenceContextSetUnknownShape, (TF_ShapeInferenceContext*, TF_Status*))

struct Api {
#define LOCKSTEP_TENSORFLOW_POINTER(result, name, parameters) result(*name) parameters = nullptr;
  LOCKSTEP_TENSORFLOW_FUNCTIONS(LOCKSTEP_TENSORFLOW_POINTER)
#undef LOCKSTEP_TENSORFLOW_POINTER
};
// NOLINTEND(readability-identifier-naming)

// Looks all functions up. Empty: they are there. Else the name of the first that is missing.
std::string load();
const Api& api();

}  // namespace lockstep::compat::tensorflow

#include "lockstep/compat/tensorflow/registration.h"

#include <memory>

namespace lockstep::compat::tensorflow {
namespace {

struct ShapeFreed {
  void operator()(TF_ShapeHandle* shape) const { api().TF_DeleteShapeHandle(shape); }
};

void infer_same(TF_ShapeInferenceContext* context, TF_Status* status) {
  const std::unique_ptr<TF_ShapeHandle, ShapeFreed> shape(api().TF_NewShapeHandle());
  const std::int64_t inputs = api().TF_ShapeInferenceContextNumInputs(context);
  for (int i = 0; i < inputs && api().TF_GetCode(status) == OK; ++i) {
    api().TF_ShapeInferenceContextGetInput(context, i, shape.get(), status);
    if (api().TF_GetCode(status) == OK)
      api().TF_ShapeInferenceContextSetOutput(context, i, shape.get(), status);
  }
}

void infer_unknown(TF_ShapeInferenceContext* context, TF_Status* status) {
  api().TF_ShapeInferenceContextSetUnknownShape(context, status);
}

}  // namespace

void define(const Definition& definition) {
  const Status status;
  TF_OpDefinitionBuilder* const builder = api().TF_NewOpDefinitionBuilder(definition.name.c_str());
  for (const std::string& one : definition.attributes)
    api().TF_OpDefinitionBuilderAddAttr(builder, one.c_str());
  for (const std::string& one : definition.inputs) api().TF_OpDefinitionBuilderAddInput(builder, one.c_str());
  for (const std::string& one : definition.outputs)
    api().TF_OpDefinitionBuilderAddOutput(builder, one.c_str());
  // TensorFlow makes the operator stateful whatever the argument.
  if (definition.is_stateful) api().TF_OpDefinitionBuilderSetIsStateful(builder, true);
  api().TF_OpDefinitionBuilderSetShapeInferenceFunction(builder,
                                                        definition.keeps_shapes ? infer_same : infer_unknown);
  api().TF_RegisterOpDefinition(builder, status.get());
  status.check();
}

void add_kernel(TF_KernelBuilder* builder, const std::string& name) {
  const Status status;
  api().TF_RegisterKernelBuilder(name.c_str(), builder, status.get());
  status.check();
}

}  // namespace lockstep::compat::tensorflow

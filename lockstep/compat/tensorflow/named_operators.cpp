#include "lockstep/compat/tensorflow/named_operators.h"

#include <algorithm>
#include <string>
#include <vector>

#include "lockstep/c/named.h"
#include "lockstep/compat/tensorflow/named_call.h"
#include "lockstep/compat/tensorflow/registration.h"

namespace lockstep::compat::tensorflow {
namespace {

double number_of(TF_OpKernelConstruction* context, const char* name) {
  const std::string text = text_of(context, name);
  try {
    return std::stod(text);
  } catch (const std::exception&) {
    throw Failure{INVALID_ARGUMENT, std::string(name) + " is not a number: " + text};
  }
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

template <int KIND> void* create_named(TF_OpKernelConstruction* context) {
  void* made = nullptr;
  guarded(context, [&] {
    made = new NamedAttributes{.kind = KIND,
                               .names = lines_of(text_of(context, "names")),
                               .process_set = static_cast<int>(int_of(context, "process_set")),
                               .op = static_cast<int>(int_of(context, "op")),
                               .root = static_cast<int>(int_of(context, "root")),
                               .prescale = number_of(context, "prescale"),
                               .postscale = number_of(context, "postscale"),
                               .is_awaited = int_of(context, "is_awaited") != 0};
  });
  return made;
}

void compute_named(void* kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done) {
  NamedCall::start(*static_cast<const NamedAttributes*>(kernel), context, done);
}

void destroy_named(void* kernel) { delete static_cast<NamedAttributes*>(kernel); }

template <int KIND> void add_named(const char* name, Definition definition) {
  definition.name = name;
  definition.attributes.insert(definition.attributes.end(),
                               {"names: string", "process_set: int = 0", "op: int = 0", "root: int = 0",
                                "prescale: string = '1'", "postscale: string = '1'", "is_awaited: int = 0"});
  define(definition);
  add_kernel(api().TF_NewAsyncKernelBuilder(name, "CPU", create_named<KIND>, compute_named, destroy_named),
             name);
}

void* create_nothing(TF_OpKernelConstruction* /*context*/) { return nullptr; }
void compute_nothing(void* /*kernel*/, TF_OpKernelContext* /*context*/) {}
void destroy_nothing(void* /*kernel*/) {}

}  // namespace

void register_named_operators() {
  const std::string types = std::string("{") + TYPE_NAMES + "}";
  const Definition many{
      .attributes = {"T: list(" + types + ") >= 1"}, .inputs = {"tensors: T"}, .outputs = {"results: T"}};
  Definition same = many;
  same.keeps_shapes = true;
  add_named<LOCKSTEP_NAMED_ALLREDUCE>("LockstepNamedAllreduce", same);
  add_named<LOCKSTEP_NAMED_BROADCAST>("LockstepNamedBroadcast", same);
  add_named<LOCKSTEP_NAMED_ALLGATHER>("LockstepNamedAllgather", many);
  add_named<LOCKSTEP_NAMED_REDUCESCATTER>("LockstepNamedReducescatter", many);
  add_named<LOCKSTEP_NAMED_ALLTOALL>("LockstepNamedAlltoall", {.attributes = {"T: " + types},
                                                               .inputs = {"tensor: T", "splits: int64"},
                                                               .outputs = {"result: T", "received: int64"}});
  define({.name = "LockstepKeep",
          .attributes = {"T: list(type) >= 1"},
          .inputs = {"tensors: T"},
          .is_stateful = true});
  add_kernel(
      api().TF_NewKernelBuilder("LockstepKeep", "CPU", create_nothing, compute_nothing, destroy_nothing),
      "LockstepKeep");
}

}  // namespace lockstep::compat::tensorflow

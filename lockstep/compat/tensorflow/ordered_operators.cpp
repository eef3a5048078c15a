#include "lockstep/compat/tensorflow/ordered_operators.h"

#include <string>
#include <vector>

#include "lockstep/c/collectives.h"
#include "lockstep/c/group.h"
#include "lockstep/compat/tensorflow/registration.h"
#include "lockstep/compat/tensorflow/tensors.h"

namespace lockstep::compat::tensorflow {
namespace {

struct Attributes {
  lockstep_group group = 0;
  int op = 0;
  int root = 0;
};

Attributes read(TF_OpKernelConstruction* context) {
  return {.group = int_of(context, "group"),
          .op = static_cast<int>(int_of(context, "op")),
          .root = static_cast<int>(int_of(context, "root"))};
}

std::int64_t size_of(lockstep_group group) {
  int size = 0;
  check(lockstep_size(group, &size));
  return size;
}

void all_reduce(const Attributes& given, TF_OpKernelContext* context) {
  std::vector<Tensor> results;
  std::vector<void*> places;
  std::vector<std::size_t> counts;
  for (int i = 0; i < api().TF_NumInputs(context); ++i) {
    results.push_back(output_in_place_of(context, i));
    places.push_back(results.back().data());
    counts.push_back(results.back().count());
  }
  const int dtype = dtype_of(results.front().type());
  if (results.size() == 1) {
    check(lockstep_all_reduce(given.group, places[0], counts[0], dtype, given.op, nullptr));
  } else {
    check(lockstep_all_reduce_coalesced(given.group, places.data(), counts.data(), places.size(), dtype,
                                        given.op, nullptr));
  }
}

void broadcast(const Attributes& given, TF_OpKernelContext* context) {
  const Tensor result = output_in_place_of(context, 0);
  check(lockstep_broadcast(given.group, result.data(), result.count(), dtype_of(result.type()), given.root,
                           nullptr));
}

void all_gather(const Attributes& given, TF_OpKernelContext* context) {
  const Tensor input = input_of(context, 0);
  std::vector<std::int64_t> shape = input.shape();
  shape.insert(shape.begin(), size_of(given.group));
  const Tensor result = new_output(context, 0, input.type(), shape);
  check(lockstep_all_gather(given.group, input.data(), result.data(), input.count(), dtype_of(input.type()),
                            nullptr));
}

// Of an input whose first dimension is the rank, the shape of one rank's part.
std::vector<std::int64_t> part_of(const Tensor& input, lockstep_group group) {
  std::vector<std::int64_t> shape = input.shape();
  const std::int64_t size = size_of(group);
  if (shape.empty() || shape.front() != size) {
    throw Failure{INVALID_ARGUMENT, "the tensor's first dimension must be the rank, " + std::to_string(size) +
                                        " long, and is " +
                                        (shape.empty() ? "none" : std::to_string(shape.front()))};
  }
  shape.erase(shape.begin());
  return shape;
}

void reduce_scatter(const Attributes& given, TF_OpKernelContext* context) {
  const Tensor input = input_of(context, 0);
  const Tensor result = new_output(context, 0, input.type(), part_of(input, given.group));
  check(lockstep_reduce_scatter(given.group, input.data(), result.data(), result.count(),
                                dtype_of(input.type()), given.op, nullptr));
}

void all_to_all(const Attributes& given, TF_OpKernelContext* context) {
  const Tensor input = input_of(context, 0);
  const std::vector<std::int64_t> part = part_of(input, given.group);
  const Tensor result = new_output(context, 0, input.type(), input.shape());
  std::size_t count = 1;
  for (const std::int64_t dim : part) count *= static_cast<std::size_t>(dim);
  check(
      lockstep_all_to_all(given.group, input.data(), result.data(), count, dtype_of(input.type()), nullptr));
}

using Verb = void (*)(const Attributes&, TF_OpKernelContext*);

template <Verb VERB> void compute_ordered(void* kernel, TF_OpKernelContext* context) {
  guarded(context, [&] { VERB(*static_cast<const Attributes*>(kernel), context); });
}

void* create_ordered(TF_OpKernelConstruction* context) {
  void* made = nullptr;
  guarded(context, [&] { made = new Attributes(read(context)); });
  return made;
}

void destroy_ordered(void* kernel) { delete static_cast<Attributes*>(kernel); }

template <Verb VERB> void add_ordered(const char* name, Definition definition) {
  definition.name = name;
  definition.attributes.insert(definition.attributes.end(), {std::string("T: {") + TYPE_NAMES + "}",
                                                             "group: int", "op: int = 0", "root: int = 0"});
  definition.is_stateful = true;
  define(definition);
  add_kernel(api().TF_NewKernelBuilder(name, "CPU", create_ordered, compute_ordered<VERB>, destroy_ordered),
             name);
}

}  // namespace

void register_ordered_operators() {
  const Definition one{.inputs = {"tensor: T"}, .outputs = {"result: T"}};
  Definition same = one;
  same.keeps_shapes = true;
  add_ordered<all_reduce>("LockstepAllReduce", {.attributes = {"N: int >= 1"},
                                                .inputs = {"tensors: N * T"},
                                                .outputs = {"results: N * T"},
                                                .keeps_shapes = true});
  add_ordered<broadcast>("LockstepBroadcast", same);
  add_ordered<all_to_all>("LockstepAllToAll", same);
  add_ordered<all_gather>("LockstepAllGather", one);
  add_ordered<reduce_scatter>("LockstepReduceScatter", one);
}

}  // namespace lockstep::compat::tensorflow

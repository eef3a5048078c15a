#include "lockstep/job/model_parallel.h"

#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/job/groups.h"
#include "lockstep/job/job.h"

namespace lockstep {
namespace {

ProcessGroup joined_group(const char* name, const std::vector<std::vector<int>>& ranks) {
  NewGroupOptions options;
  options.name = name;
  return new_subgroups_by_enumeration(ranks, options).mine;
}

}  // namespace

ModelParallel::ModelParallel(ModelParallelMesh plan, DeviceMesh mesh, JoinedGroups groups)
    : plan_(std::move(plan)), mesh_(std::move(mesh)), groups_(std::move(groups)) {}

const ProcessGroup& ModelParallel::get_data_parallel_group(bool with_context_parallel) const {
  return with_context_parallel ? groups_.data_with_context : mesh_.get_group("dp");
}

const ProcessGroup& ModelParallel::get_embedding_group() const {
  if (is_rank_in_embedding_group()) return groups_.embedding;
  throw InvalidArgument(str("get_embedding_group: rank ", get_rank(), " is in stage ",
                            get_pipeline_model_parallel_rank(), " of ",
                            get_pipeline_model_parallel_world_size(),
                            ", and the embedding group joins the first and the last stage; ask "
                            "is_rank_in_embedding_group() first"));
}

int ModelParallel::get_data_parallel_rank(bool with_context_parallel) const {
  return get_data_parallel_group(with_context_parallel).rank();
}

int ModelParallel::get_data_parallel_world_size(bool with_context_parallel) const {
  return get_data_parallel_group(with_context_parallel).size();
}

bool ModelParallel::is_pipeline_last_stage() const {
  return get_pipeline_model_parallel_rank() == get_pipeline_model_parallel_world_size() - 1;
}

int ModelParallel::stage(int number) const {
  const int stages = get_pipeline_model_parallel_world_size();
  return get_global_rank(get_pipeline_model_parallel_group(), (number + stages) % stages);
}

void ModelParallel::destroy() const {
  for (const std::string& axis : mesh_.mesh_dim_names()) destroy_process_group(mesh_.get_group(axis));
  for (const ProcessGroup* group : {&groups_.data_with_context, &groups_.model, &groups_.embedding})
    destroy_process_group(*group);
}

ModelParallel init_model_parallel(const ModelParallelSizes& sizes, const std::string& order) {
  ModelParallelMesh plan = model_parallel_mesh(sizes, get_world_size(), order);
  DeviceMesh mesh = init_device_mesh(plan.shape, plan.mesh_dim_names);
  ModelParallel::JoinedGroups groups{.data_with_context = joined_group("dp-cp", plan.groups({"dp", "cp"})),
                                     .model = joined_group("tp-pp", plan.groups({"tp", "pp"})),
                                     .embedding = joined_group("embedding", plan.embedding_groups())};
  return {std::move(plan), std::move(mesh), std::move(groups)};
}

}  // namespace lockstep

// init_model_parallel: the groups of tensor, pipeline, context and data parallelism, over the ranks of this
// job. Megatron's initialize_model_parallel and the functions of its parallel_state, as a value.
//
//   const ModelParallel parallel = lockstep::init_model_parallel({.tensor = 2, .pipeline = 2});   // 8 ranks
//   comm::all_reduce(parallel.get_tensor_model_parallel_group(), activations);     // of rank 5: {4,5}
//   comm::all_reduce(parallel.get_data_parallel_group(), gradients);               // of rank 5: {5,7}
//   if (parallel.is_pipeline_last_stage()) report_loss();                          // ranks 4 to 7
//
// Groups      by the ranks that they join, which is to say by the axes along which their ranks differ:
//               tensor_model_parallel     tp      the pieces of one layer
//               pipeline_model_parallel   pp      the stages of one model
//               context_parallel          cp      the parts of one sequence
//               data_parallel             dp      the copies of one piece; with_context_parallel: dp and cp,
//                                                 over which gradients are averaged
//               model_parallel            tp, pp  all pieces of one copy of the model
//               embedding                 first and last stage of a pipeline, which hold tied embeddings
//             Each axis has a group, also one of size 1. plan() is the table of all ranks
//             (job/model_parallel_mesh.h), which `lockstep plan --mesh` prints without a job.
// Ranks       get_..._rank() and get_..._world_size() count within the group. The pipeline's first, last,
//             next and previous rank are ranks of the job, as send() and recv() take them. Next and
//             previous go round: the last stage's next is the first.
// Collective  init_model_parallel: every rank of the job calls it, with the same arguments. It makes
//             seven sets of groups.
// Fails       InvalidArgument, before anything is sent, as model_parallel_mesh(): sizes that do not
//             multiply to the number of ranks, an order that lacks an axis. get_embedding_group() throws
//             it on a rank of a stage between the first and the last; is_rank_in_embedding_group() asks
//             first.
// Lifetime    a ModelParallel is a value. Its groups live until destroy() or destroy_process_group().
// Source      Narayanan et al., 2021, arXiv 2104.04473; Megatron-LM's parallel_state.py.
#pragma once

#include <string>

#include "lockstep/base/visibility.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/job/device_mesh.h"
#include "lockstep/job/model_parallel_mesh.h"

namespace LOCKSTEP_PUBLIC lockstep {

class ModelParallel {
 public:
  // init_model_parallel() makes one. `groups`: those over several axes, and of the embedding.
  struct JoinedGroups {
    ProcessGroup data_with_context;
    ProcessGroup model;
    ProcessGroup embedding;
  };
  ModelParallel(ModelParallelMesh plan, DeviceMesh mesh, JoinedGroups groups);

  const ModelParallelMesh& plan() const { return plan_; }
  const DeviceMesh& mesh() const { return mesh_; }  // its axes are those of the plan: "pp", "dp", "cp", "tp"

  const ProcessGroup& get_tensor_model_parallel_group() const { return mesh_.get_group("tp"); }
  const ProcessGroup& get_pipeline_model_parallel_group() const { return mesh_.get_group("pp"); }
  const ProcessGroup& get_context_parallel_group() const { return mesh_.get_group("cp"); }
  const ProcessGroup& get_data_parallel_group(bool with_context_parallel = false) const;
  const ProcessGroup& get_model_parallel_group() const { return groups_.model; }
  const ProcessGroup& get_embedding_group() const;
  bool is_rank_in_embedding_group() const { return groups_.embedding.is_member(); }

  int get_tensor_model_parallel_rank() const { return mesh_.get_local_rank("tp"); }
  int get_tensor_model_parallel_world_size() const { return mesh_.size("tp"); }
  int get_pipeline_model_parallel_rank() const { return mesh_.get_local_rank("pp"); }
  int get_pipeline_model_parallel_world_size() const { return mesh_.size("pp"); }
  int get_context_parallel_rank() const { return mesh_.get_local_rank("cp"); }
  int get_context_parallel_world_size() const { return mesh_.size("cp"); }
  int get_data_parallel_rank(bool with_context_parallel = false) const;
  int get_data_parallel_world_size(bool with_context_parallel = false) const;

  int get_virtual_pipeline_model_parallel_world_size() const { return plan_.virtual_pipeline; }
  bool is_pipeline_first_stage() const { return get_pipeline_model_parallel_rank() == 0; }
  bool is_pipeline_last_stage() const;
  int get_pipeline_model_parallel_first_rank() const { return stage(0); }
  int get_pipeline_model_parallel_last_rank() const { return stage(-1); }
  int get_pipeline_model_parallel_next_rank() const { return stage(get_pipeline_model_parallel_rank() + 1); }
  int get_pipeline_model_parallel_prev_rank() const { return stage(get_pipeline_model_parallel_rank() - 1); }

  // destroy_process_group() of every group. The object is of no use afterwards.
  void destroy() const;

 private:
  int stage(int number) const;  // its rank in the job; numbers go round

  ModelParallelMesh plan_;
  DeviceMesh mesh_;
  JoinedGroups groups_;
};

// Groups are named "tp", "cp", "dp", "pp", "dp-cp", "tp-pp" and "embedding" in errors.
ModelParallel init_model_parallel(const ModelParallelSizes& sizes,
                                  const std::string& order = MEGATRON_RANK_ORDER);

}  // namespace lockstep

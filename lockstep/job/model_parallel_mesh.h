// model_parallel_mesh: which ranks work together along each axis of tensor, pipeline, context and data
// parallelism: Megatron's initialize_model_parallel as a table. Pure: sizes in, groups out.
//
//   const ModelParallelMesh mesh = model_parallel_mesh({.tensor = 2, .pipeline = 4}, /*world_size=*/16);
//   mesh.groups({"tp"});                // {0,1} {2,3} {4,5} ...
//   mesh.groups({"dp"});                // {0,2} {1,3} {4,6} ...
//   mesh.groups({"pp"});                // {0,4,8,12} {1,5,9,13} ...
//   mesh.groups({"tp", "pp"});          // {0,1,4,5,8,9,12,13} {2,3,6,7,10,11,14,15}: one model
//   mesh.get_coordinate(6);             // {1, 1, 0, 0}: pp, dp, cp, tp
//
// As groups   init_device_mesh(mesh.shape, mesh.mesh_dim_names) makes the groups of every axis. Groups over
//             several axes, or mesh.embedding_groups(), go to new_subgroups_by_enumeration.
// Axes        tp tensor, cp context, dp data, pp pipeline, in Megatron's short names. All four are always
//             there, also those of size 1.
// Order       the axes from the one whose neighbours have consecutive ranks to the one whose neighbours are
//             farthest apart, as Megatron writes it: "tp-cp-ep-dp-pp" puts a tensor-parallel group on
//             consecutive ranks. `shape` has the opposite order, as init_device_mesh takes it. "ep" (expert
//             parallelism, which Lockstep has not) may be named and has size 1. An axis of size 1 may be left
//             out.
// Sizes       tensor * pipeline * context * data is the number of ranks. data = 0: as many as are left.
// virtual_pipeline    model chunks of each rank, for interleaved schedules. It is no axis: chunk c of the
//             rank with pipeline coordinate r is part c p + r of the model (schedules/pipeline_schedule.h).
// Throws      InvalidArgument: a size below 1; sizes that do not multiply to the number of ranks; chunks
//             without a pipeline; an order with a name that is no axis, that is given twice, or without an
//             axis that has a size; an axis that groups() does not know, or has twice.
// Source      Narayanan et al., 2021, arXiv 2104.04473; Megatron-LM's parallel_state.py.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

inline constexpr const char* MEGATRON_RANK_ORDER = "tp-cp-ep-dp-pp";

struct ModelParallelSizes {
  int tensor = 1;
  int pipeline = 1;
  int virtual_pipeline = 1;
  int context = 1;
  int data = 0;
};

struct ModelParallelMesh {
  std::vector<int> shape;                   // the axis with the farthest neighbours first
  std::vector<std::string> mesh_dim_names;  // of `shape`
  int virtual_pipeline = 1;

  int world_size() const;
  int size(const std::string& axis) const;
  std::vector<int> get_coordinate(int rank) const;
  int get_local_rank(int rank, const std::string& axis) const;

  // The ranks that differ in these axes alone, as ascending lists. Their order is that of their first ranks.
  std::vector<std::vector<int>> groups(const std::vector<std::string>& axes) const;
  // The first and the last rank of each pipeline, which hold tied embeddings; one rank if there is no other.
  std::vector<std::vector<int>> embedding_groups() const;
};

ModelParallelMesh model_parallel_mesh(const ModelParallelSizes& sizes, int world_size,
                                      const std::string& order = MEGATRON_RANK_ORDER);

// Sizes, the coordinates of each rank, the groups along each axis and over those axes that are reduced
// together: dp-cp (gradients), tp-pp (one model), and the embeddings.
std::string to_text(const ModelParallelMesh& mesh);

}  // namespace lockstep

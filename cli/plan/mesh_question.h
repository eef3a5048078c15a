// `lockstep plan --mesh`: sizes of parallel axes as people write them, and the groups as text or JSON. Pure.
//
//   parse_mesh_sizes("tp=2,pp=4")     // {.tensor = 2, .pipeline = 4}
#pragma once

#include <string>

#include "lockstep/job/model_parallel_mesh.h"

namespace lockstep::cli {

// Axes tp, pp, vpp (model chunks of each rank), cp and dp with their sizes. UsageError for anything else.
ModelParallelSizes parse_mesh_sizes(const std::string& text);

// One object: shape, mesh_dim_names, and the groups that to_text(mesh) lists.
std::string mesh_json(const ModelParallelMesh& mesh);

}  // namespace lockstep::cli

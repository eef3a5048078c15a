// DeviceMesh: the ranks of a job on a grid with named axes, and the group along each axis. For combinations
// of data, tensor and pipeline parallelism. torch's init_device_mesh.
//
//   const DeviceMesh mesh = lockstep::init_device_mesh({2, 4}, {"dp", "tp"});      // eight ranks: 0 1 2 3
//   comm::all_reduce(mesh.get_group("tp"), activations);      // over {0,1,2,3}     //             4 5 6 7
//   comm::all_reduce(mesh.get_group("dp"), gradients);        // over {0,4}
//   mesh.get_local_rank("tp"); mesh.size("dp"); mesh.get_coordinate();              // rank 6: 2, 2, {1, 2}
//
// Collective  init_device_mesh: every rank of the world calls it, with the same arguments. It makes one group
//             per row of each axis.
// Order       neighbours on the last axis have consecutive ranks (row-major, like torch). So the last axis
//             suits the dimension that communicates most.
// Fails       InvalidArgument, before anything is sent, if the product of the sizes is not the number of
//             ranks, a size is not positive, or a name is missing, empty or repeated. For an unknown name:
//             InvalidArgument that lists the mesh's names.
// Lifetime    a mesh is a value; its groups live until destroy_process_group().
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/visibility.h"
#include "lockstep/comm/process_group.h"

namespace LOCKSTEP_PUBLIC lockstep {

// All rows of a mesh along `axis`, as lists of ranks. Pure.
//   mesh_rows({2, 3}, 0)      {{0, 3}, {1, 4}, {2, 5}}
//   mesh_rows({2, 3}, 1)      {{0, 1, 2}, {3, 4, 5}}
std::vector<std::vector<int>> mesh_rows(const std::vector<int>& shape, std::size_t axis);

class DeviceMesh {
 public:
  struct Axis {
    std::string name;
    int size = 1;
    int coordinate = 0;  // of this rank
    ProcessGroup group;
  };

  explicit DeviceMesh(std::vector<Axis> axes) : axes_(std::move(axes)) {}

  int ndim() const { return static_cast<int>(axes_.size()); }
  int size() const;  // ranks of the whole mesh
  int size(const std::string& name) const { return axis(name).size; }
  std::vector<int> shape() const;
  std::vector<std::string> mesh_dim_names() const;

  const ProcessGroup& get_group(const std::string& name) const { return axis(name).group; }
  const ProcessGroup& get_group() const;  // of a mesh with one axis
  int get_local_rank(const std::string& name) const { return axis(name).coordinate; }
  std::vector<int> get_coordinate() const;

  // The sub-mesh along these axes that contains this rank: mesh["tp"], or mesh.slice({"tp", "dp"}), with axes
  // in that order.
  DeviceMesh operator[](const std::string& name) const { return DeviceMesh({axis(name)}); }
  DeviceMesh slice(const std::vector<std::string>& names) const;

 private:
  const Axis& axis(const std::string& name) const;

  std::vector<Axis> axes_;
};

DeviceMesh init_device_mesh(const std::vector<int>& shape, const std::vector<std::string>& mesh_dim_names);

}  // namespace lockstep

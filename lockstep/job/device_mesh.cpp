#include "lockstep/job/device_mesh.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/job/groups.h"
#include "lockstep/job/job.h"

namespace lockstep {
namespace {

// The distance in ranks between neighbours along an axis.
int stride_of(const std::vector<int>& shape, std::size_t axis) {
  int stride = 1;
  for (std::size_t i = axis + 1; i < shape.size(); ++i) stride *= shape[i];
  return stride;
}

void check(const std::vector<int>& shape, const std::vector<std::string>& names) {
  if (shape.empty() || shape.size() != names.size()) {
    throw InvalidArgument(str("init_device_mesh: ", shape.size(), " sizes and ", names.size(),
                              " names; one name per size is needed, and at least one of both"));
  }
  long ranks = 1;
  std::string sizes;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] < 1)
      throw InvalidArgument(str("init_device_mesh: size ", shape[i], " of axis ", i, " is not positive"));
    if (names[i].empty() || std::count(names.begin(), names.end(), names[i]) > 1)
      throw InvalidArgument(
          str("init_device_mesh: the name \"", printable(names[i]), "\" is empty or given twice"));
    ranks = std::min(ranks * shape[i], 1L << 30U);
    sizes += str(i == 0 ? "" : " x ", shape[i]);
  }
  if (ranks != get_world_size()) {
    throw InvalidArgument(
        str("init_device_mesh: a mesh of ", sizes, " has ", ranks, " ranks, the job has ", get_world_size()));
  }
}

}  // namespace

// A row begins at each rank whose coordinate along the axis is 0.
std::vector<std::vector<int>> mesh_rows(const std::vector<int>& shape, std::size_t axis) {
  int ranks = 1;
  for (const int size : shape) ranks *= size;
  const int stride = stride_of(shape, axis);
  std::vector<std::vector<int>> rows;
  for (int first = 0; first < ranks; ++first) {
    if (first / stride % shape[axis] != 0) continue;
    std::vector<int>& row = rows.emplace_back();
    for (int i = 0; i < shape[axis]; ++i) row.push_back(first + i * stride);
  }
  return rows;
}

DeviceMesh init_device_mesh(const std::vector<int>& shape, const std::vector<std::string>& mesh_dim_names) {
  check(shape, mesh_dim_names);
  std::vector<DeviceMesh::Axis> axes;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    NewGroupOptions options;
    options.name = mesh_dim_names[i];
    ProcessGroup group = new_subgroups_by_enumeration(mesh_rows(shape, i), options).mine;
    axes.push_back(
        {mesh_dim_names[i], shape[i], get_rank() / stride_of(shape, i) % shape[i], std::move(group)});
  }
  return DeviceMesh(std::move(axes));
}

int DeviceMesh::size() const {
  int ranks = 1;
  for (const Axis& axis : axes_) ranks *= axis.size;
  return ranks;
}

std::vector<int> DeviceMesh::shape() const {
  std::vector<int> shape;
  for (const Axis& axis : axes_) shape.push_back(axis.size);
  return shape;
}

std::vector<std::string> DeviceMesh::mesh_dim_names() const {
  std::vector<std::string> names;
  for (const Axis& axis : axes_) names.push_back(axis.name);
  return names;
}

std::vector<int> DeviceMesh::get_coordinate() const {
  std::vector<int> coordinate;
  for (const Axis& axis : axes_) coordinate.push_back(axis.coordinate);
  return coordinate;
}

const ProcessGroup& DeviceMesh::get_group() const {
  if (axes_.size() == 1) return axes_[0].group;
  throw InvalidArgument(
      str("DeviceMesh: this mesh has ", axes_.size(), " axes; pass the name of one of them"));
}

DeviceMesh DeviceMesh::slice(const std::vector<std::string>& names) const {
  std::vector<Axis> axes;
  for (const std::string& name : names) axes.push_back(axis(name));
  return DeviceMesh(std::move(axes));
}

const DeviceMesh::Axis& DeviceMesh::axis(const std::string& name) const {
  std::string known;
  for (const Axis& candidate : axes_) {
    if (candidate.name == name) return candidate;
    known += str(known.empty() ? "" : ", ", candidate.name);
  }
  throw InvalidArgument(str("DeviceMesh: there is no axis \"", printable(name), "\"; there are ", known));
}

}  // namespace lockstep

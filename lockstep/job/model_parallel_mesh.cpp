#include "lockstep/job/model_parallel_mesh.h"

#include <algorithm>
#include <array>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

using RankGroups = std::vector<std::vector<int>>;

struct ParallelAxis {
  const char* name;
  const char* field;
  int size;
};
using ParallelAxes = std::array<ParallelAxis, 5>;

ParallelAxes axes_of(const ModelParallelSizes& sizes) {
  return {{{"tp", "tensor", sizes.tensor},
           {"cp", "context", sizes.context},
           {"ep", "expert", 1},
           {"dp", "data", sizes.data},
           {"pp", "pipeline", sizes.pipeline}}};
}

void check_sizes(const ModelParallelSizes& sizes, int world_size) {
  for (const auto& [name, field, size] : axes_of(sizes))
    if (size < 1)
      throw InvalidArgument(str("model_parallel_mesh: ", field, " is ", size, "; it is at least 1"));
  if (sizes.virtual_pipeline < 1 || (sizes.virtual_pipeline > 1 && sizes.pipeline == 1)) {
    throw InvalidArgument(str("model_parallel_mesh: virtual_pipeline is ", sizes.virtual_pipeline,
                              " with a pipeline of ", sizes.pipeline,
                              "; it is at least 1, and more only with a pipeline of at least 2"));
  }
  long ranks = 1;
  for (const auto& axis : axes_of(sizes)) ranks = std::min(ranks * axis.size, 1L << 31U);
  if (ranks != world_size) {
    throw InvalidArgument(str("model_parallel_mesh: tensor ", sizes.tensor, " x context ", sizes.context,
                              " x data ", sizes.data, " x pipeline ", sizes.pipeline, " has ", ranks,
                              " ranks, the job has ", world_size));
  }
}

// Fills in the size of the data axis.
ModelParallelSizes with_data(ModelParallelSizes sizes, int world_size) {
  if (sizes.data != 0) return sizes;
  long model = 1;
  for (const int size : {sizes.tensor, sizes.context, sizes.pipeline})
    model = std::clamp(model * size, 0L, 1L << 31U);
  if (model > 0 && world_size % model != 0) {
    throw InvalidArgument(str("model_parallel_mesh: tensor ", sizes.tensor, " x context ", sizes.context,
                              " x pipeline ", sizes.pipeline, " is ", model, ", which does not divide the ",
                              world_size, " ranks of the job"));
  }
  sizes.data = model > 0 ? static_cast<int>(world_size / model) : 1;
  return sizes;
}

std::vector<std::string> axis_names(const std::string& order) {
  std::vector<std::string> names(1);
  for (const char c : order) {
    if (c == '-') {
      names.emplace_back();
    } else {
      names.back() += c;
    }
  }
  return names;
}

[[noreturn]] void refuse_order(const std::string& order, const std::string& why) {
  throw InvalidArgument(str("model_parallel_mesh: the rank order ", in_quotes(order), ' ', why,
                            "; it has the axes tp, cp, dp and pp once each, as ",
                            in_quotes(MEGATRON_RANK_ORDER)));
}

// All axes by the order, nearest neighbours first. Axes of size 1 that it leaves out come last.
std::vector<ParallelAxis> ordered(const ParallelAxes& axes, const std::string& order) {
  const auto named = [](const std::string& name) {
    return [&name](const ParallelAxis& axis) { return axis.name == name; };
  };
  std::vector<ParallelAxis> all;
  for (const std::string& name : axis_names(order)) {
    const auto* const axis = std::find_if(axes.begin(), axes.end(), named(name));
    if (axis == axes.end()) refuse_order(order, str("has no axis by the name ", in_quotes(name)));
    if (std::any_of(all.begin(), all.end(), named(name))) refuse_order(order, str("has ", name, " twice"));
    all.push_back(*axis);
  }
  for (const ParallelAxis& axis : axes) {
    if (std::any_of(all.begin(), all.end(), named(axis.name))) continue;
    if (axis.size > 1) refuse_order(order, str("lacks ", axis.name, ", which has size ", axis.size));
    all.push_back(axis);
  }
  return all;
}

std::string comma_list(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += str(text.empty() ? "" : ",", rank);
  return text;
}

std::string groups_line(const std::string& name, const RankGroups& groups) {
  constexpr std::size_t NAME_WIDTH = 11;
  std::string line = name;
  line.resize(std::max(NAME_WIDTH, line.size() + 1), ' ');
  for (const auto& ranks : groups) line += str(" {", comma_list(ranks), '}');
  return line + '\n';
}

std::string right_aligned(const std::string& text, std::size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + text;
}

}  // namespace

int ModelParallelMesh::world_size() const {
  int ranks = 1;
  for (const int size : shape) ranks *= size;
  return ranks;
}

std::vector<int> ModelParallelMesh::get_coordinate(int rank) const {
  if (rank < 0 || rank >= world_size())
    throw InvalidArgument(str("model_parallel_mesh: there is no rank ", rank, " among ", world_size()));
  std::vector<int> coordinate(shape.size());
  for (std::size_t i = shape.size(); i-- > 0; rank /= shape[i]) coordinate[i] = rank % shape[i];
  return coordinate;
}

namespace {

std::size_t axis_index(const ModelParallelMesh& mesh, const std::string& axis) {
  const auto& names = mesh.mesh_dim_names;
  const auto found = std::find(names.begin(), names.end(), axis);
  if (found == names.end())
    throw InvalidArgument(
        str("model_parallel_mesh: there is no axis ", in_quotes(axis), "; there are tp, cp, dp, pp"));
  return static_cast<std::size_t>(found - names.begin());
}

}  // namespace

int ModelParallelMesh::size(const std::string& axis) const { return shape[axis_index(*this, axis)]; }

int ModelParallelMesh::get_local_rank(int rank, const std::string& axis) const {
  return get_coordinate(rank)[axis_index(*this, axis)];
}

RankGroups ModelParallelMesh::groups(const std::vector<std::string>& axes) const {
  std::vector<bool> varies(shape.size(), false);
  for (const std::string& axis : axes) {
    const std::size_t index = axis_index(*this, axis);
    if (varies[index]) throw InvalidArgument(str("model_parallel_mesh: groups of the axis ", axis, " twice"));
    varies[index] = true;
  }
  // A group is known by its first rank: the coordinates along its axes are 0 there.
  std::vector<int> group_of(static_cast<std::size_t>(world_size()), -1);
  RankGroups groups;
  for (int rank = 0; rank < world_size(); ++rank) {
    const std::vector<int> coordinate = get_coordinate(rank);
    int first = 0;
    for (std::size_t i = 0; i < shape.size(); ++i) first = first * shape[i] + (varies[i] ? 0 : coordinate[i]);
    int& group = group_of[static_cast<std::size_t>(first)];
    if (group < 0) {
      group = static_cast<int>(groups.size());
      groups.emplace_back();
    }
    groups[static_cast<std::size_t>(group)].push_back(rank);
  }
  return groups;
}

RankGroups ModelParallelMesh::embedding_groups() const {
  RankGroups ends = groups({"pp"});
  for (auto& pipeline : ends)
    if (pipeline.size() > 1) pipeline = {pipeline.front(), pipeline.back()};
  return ends;
}

ModelParallelMesh model_parallel_mesh(const ModelParallelSizes& sizes, int world_size,
                                      const std::string& order) {
  const ModelParallelSizes all = with_data(sizes, world_size);
  check_sizes(all, world_size);
  ModelParallelMesh mesh;
  mesh.virtual_pipeline = all.virtual_pipeline;
  for (const ParallelAxis& axis : ordered(axes_of(all), order)) {
    if (axis.name == std::string("ep")) continue;
    mesh.shape.insert(mesh.shape.begin(), axis.size);
    mesh.mesh_dim_names.insert(mesh.mesh_dim_names.begin(), axis.name);
  }
  return mesh;
}

std::string to_text(const ModelParallelMesh& mesh) {
  constexpr std::size_t COLUMN = 6;
  std::string text = str(mesh.world_size(), mesh.world_size() == 1 ? " rank:" : " ranks:");
  std::string head = "rank";
  for (std::size_t i = 0; i < mesh.shape.size(); ++i) {
    text += str(i == 0 ? " " : " x ", mesh.mesh_dim_names[i], ' ', mesh.shape[i]);
    head += right_aligned(mesh.mesh_dim_names[i], COLUMN);
  }
  if (mesh.virtual_pipeline > 1) text += str(", ", mesh.virtual_pipeline, " model chunks a rank");
  text += str("\n\n", head, '\n');
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    text += right_aligned(std::to_string(rank), 4);
    for (const int c : mesh.get_coordinate(rank)) text += right_aligned(std::to_string(c), COLUMN);
    text += '\n';
  }
  text += '\n';
  for (const char* axis : {"tp", "cp", "dp", "pp"}) text += groups_line(axis, mesh.groups({axis}));
  text += groups_line("dp-cp", mesh.groups({"dp", "cp"}));
  text += groups_line("tp-pp", mesh.groups({"tp", "pp"}));
  return text + groups_line("embedding", mesh.embedding_groups());
}

}  // namespace lockstep

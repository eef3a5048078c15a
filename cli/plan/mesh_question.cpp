#include "cli/plan/mesh_question.h"

#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "cli/plan/chosen.h"

namespace lockstep::cli {
namespace {

constexpr std::array MESH_AXES =
    std::to_array<Word<int ModelParallelSizes::*>>({{"tp", &ModelParallelSizes::tensor},
                                                    {"pp", &ModelParallelSizes::pipeline},
                                                    {"vpp", &ModelParallelSizes::virtual_pipeline},
                                                    {"cp", &ModelParallelSizes::context},
                                                    {"dp", &ModelParallelSizes::data}});

int parse_axis_size(const std::string& axis, const std::string& text) {
  int size = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
  if (error != std::errc() || end != text.data() + text.size() || size < 1)
    throw UsageError(str("--mesh: the size of ", axis, " is a number from 1 on, not ", in_quotes(text)));
  return size;
}

}  // namespace

ModelParallelSizes parse_mesh_sizes(const std::string& text) {
  ModelParallelSizes sizes;
  std::set<std::string> seen;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    const std::size_t sign = word.find('=');
    if (sign == std::string::npos)
      throw UsageError(str("--mesh takes axes with their sizes, such as tp=2,pp=4, not ", in_quotes(word)));
    const std::string axis = word.substr(0, sign);
    int ModelParallelSizes::*const size = chosen("an axis of --mesh", axis, MESH_AXES).value;
    if (!seen.insert(axis).second) throw UsageError(str("--mesh has ", axis, " twice"));
    sizes.*size = parse_axis_size(axis, word.substr(sign + 1));
  }
  return sizes;
}

std::string mesh_json(const ModelParallelMesh& mesh) {
  nlohmann::ordered_json json = {{"world_size", mesh.world_size()},
                                 {"shape", mesh.shape},
                                 {"mesh_dim_names", mesh.mesh_dim_names},
                                 {"virtual_pipeline", mesh.virtual_pipeline}};
  for (const char* axis : {"tp", "cp", "dp", "pp"}) json["groups"][axis] = mesh.groups({axis});
  json["groups"]["dp-cp"] = mesh.groups({"dp", "cp"});
  json["groups"]["tp-pp"] = mesh.groups({"tp", "pp"});
  json["groups"]["embedding"] = mesh.embedding_groups();
  return json.dump(2) + '\n';
}

}  // namespace lockstep::cli

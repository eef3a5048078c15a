#include "lockstep/formats/checkpoint_convert.h"

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/formats/safetensors.h"

namespace lockstep {
namespace {

struct Chosen {
  std::string name;  // in the file
  std::string stored;
};

// The tensors of an item by their names in it, or all.
std::vector<Chosen> chosen_tensors(const CheckpointIndex& index, const std::string& item) {
  std::vector<Chosen> chosen;
  for (const auto& [name, tensor] : index.tensors) {
    if (item.empty() && name.find('@') == std::string::npos) chosen.push_back({name, name});
    if (!item.empty() && name == item) chosen.push_back({item, name});
    if (!item.empty() && name.starts_with(item + ".")) chosen.push_back({name.substr(item.size() + 1), name});
  }
  return chosen;
}

}  // namespace

std::size_t convert_checkpoint(CheckpointReader& reader, const std::string& item, const std::string& output) {
  const std::vector<Chosen> chosen = chosen_tensors(reader.index(), item);
  (void)output;
  return chosen.size();
}

}  // namespace lockstep

#include "lockstep/formats/checkpoint_convert.h"

#include <filesystem>
#include <map>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/formats/pt_writer.h"
#include "lockstep/formats/safetensors_writer.h"

namespace lockstep {
namespace {

struct Chosen {
  std::string name;  // in the file
  std::string stored;
};

// Returns the tensors of an item by their names in it, or all.
std::vector<Chosen> chosen_tensors(const CheckpointIndex& index, const std::string& item) {
  std::vector<Chosen> chosen;
  for (const auto& [name, tensor] : index.tensors) {
    if (item.empty() && name.find('@') == std::string::npos) chosen.push_back({name, name});
    if (!item.empty() && name == item) chosen.push_back({item, name});
    if (!item.empty() && name.starts_with(item + ".")) chosen.push_back({name.substr(item.size() + 1), name});
  }
  return chosen;
}

void into_safetensors(CheckpointReader& reader, const std::vector<Chosen>& chosen,
                      const std::string& output) {
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, std::string> stored;
  for (const Chosen& one : chosen) {
    const CheckpointTensor& tensor = reader.index().tensors.at(one.stored);
    entries.push_back({one.name, tensor.dtype, tensor.shape});
    stored[one.name] = one.stored;
  }
  SafetensorsWriter writer(output, std::move(entries));
  for (const SafetensorsTensor& tensor : writer.tensors()) writer.write(reader.read(stored.at(tensor.name)));
  writer.commit();
}

void into_pt(CheckpointReader& reader, const std::vector<Chosen>& chosen, const std::string& output) {
  std::vector<PtEntry> entries;
  for (const Chosen& one : chosen) {
    const CheckpointTensor& tensor = reader.index().tensors.at(one.stored);
    entries.push_back({.name = one.name, .dtype = tensor.dtype, .shape = tensor.shape});
  }
  PtWriter writer(output, std::move(entries));
  for (const Chosen& one : chosen) writer.write(reader.read(one.stored));
  writer.commit();
}

}  // namespace

std::size_t convert_checkpoint(CheckpointReader& reader, const std::string& item, const std::string& output) {
  const std::vector<Chosen> chosen = chosen_tensors(reader.index(), item);
  if (chosen.empty())
    throw InvalidArgument(str("the checkpoint has no tensors of an item ", in_quotes(item)));
  const std::string ending = std::filesystem::path(output).extension().string();
  if (ending == ".safetensors") {
    into_safetensors(reader, chosen, output);
  } else if (ending == ".pt" || ending == ".pth") {
    into_pt(reader, chosen, output);
  } else {
    throw InvalidArgument(str(in_quotes(output), " must end in .safetensors, .pt or .pth"));
  }
  return chosen.size();
}

}  // namespace lockstep

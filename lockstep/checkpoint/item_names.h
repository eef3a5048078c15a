// Names of a checkpoint's tensors. Pure.
//
//   tensor_name("model", "fc.weight")            "model.fc.weight"
//   rank_tensor_name("random", 3, "cpu")         "random@3.cpu": rank 3's own
//   rank_name_of("model.bn.running_mean", 1)     "model@1.bn.running_mean"
//
// The name of an item has no '.' and no '@', so a tensor's name shows its item.
#pragma once

#include <map>
#include <string>

namespace lockstep {

// `name` may be empty: the item is one tensor.
inline std::string tensor_name(const std::string& item, const std::string& name) {
  return name.empty() ? item : item + "." + name;
}
inline std::string rank_tensor_name(const std::string& item, int rank, const std::string& name) {
  return tensor_name(item + "@" + std::to_string(rank), name);
}
inline std::string item_of(const std::string& tensor) { return tensor.substr(0, tensor.find_first_of(".@")); }
inline std::string rank_name_of(const std::string& tensor, int rank) {
  std::string name = tensor;
  return name.insert(item_of(tensor).size(), "@" + std::to_string(rank));
}
inline bool is_of_a_rank(const std::string& tensor) {
  const std::size_t mark = tensor.find_first_of(".@");
  return mark != std::string::npos && tensor[mark] == '@';
}

// The facts besides the checkpoint on which the bits of a resumed run depend: libtorch, the CPU's instruction
// set, threads.
std::map<std::string, std::string> made_with();

}  // namespace lockstep

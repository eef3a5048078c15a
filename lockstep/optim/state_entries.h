// The entries of an optimiser's state dict, which a file holds as a flat list of names. Pure.
//
//   state.3.exp_avg              param_groups.0.lr             param_groups.0.params    by number
//   state.fc1.weight.exp_avg     param_groups.fc1.weight.lr                             by parameter name
//
// The form by name is that of Python's torch.distributed.checkpoint with flatten_optimizer_state_dict. It has
// no entry "params", which distinguishes the two forms.
#pragma once

#include <cstddef>
#include <string>

#include "lockstep/tensor/named_tensors.h"

namespace lockstep::optim {

struct StateEntry {
  bool is_option = false;  // an option of a parameter group
  // number or name of a parameter; in the form by number, number of the group for an option
  std::string owner;
  std::string key;
};

// Throws InvalidArgument for a name of another form.
StateEntry entry_of(const std::string& name);
// The owner of an entry by number. Throws InvalidArgument for a name.
std::size_t number_of_owner(const StateEntry& entry, const std::string& name);
bool is_by_number(const NamedTensors& entries);

}  // namespace lockstep::optim

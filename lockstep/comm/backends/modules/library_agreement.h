// The ranks of a meeting agree on a library that a backend loads. Either every rank has loaded the same
// library, or every rank throws and names the reason.
//
//   // collective, as Meeting::exchange()
//   gloo::Module& module = open_on_all(meeting, "gloo", gloo::open_library, deadline);
//   for (const std::string& text : tell_all(meeting, my_address, my_failure, deadline)) ...
//
// Throws      InvalidArgument on all ranks, with the failure of the first that has one, or with the two
//             libraries; and what Meeting::exchange() throws.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/comm/meeting/meeting.h"

namespace lockstep {

// Returns the texts of all ranks, by rank. `failure` is this rank's failure, or empty.
std::vector<std::string> tell_all(Meeting& meeting, const std::string& text, const std::string& failure,
                                  Deadline deadline);

// `library` is the name and version of the library that this rank has loaded. `failure` is the reason why it
// has loaded none, or empty.
void agree_on_library(Meeting& meeting, std::string_view backend, const std::string& library,
                      const std::string& failure, Deadline deadline);

// Opens the library on this rank, then agrees on it with the other ranks.
template <typename Library>
Library& open_on_all(Meeting& meeting, std::string_view backend, Library& (*open)(), Deadline deadline) {
  Library* opened = nullptr;
  std::string library;
  std::string failure;
  try {
    opened = &open();
    library = opened->library();
  } catch (const Error& error) {
    failure = error.what();
  }
  agree_on_library(meeting, backend, library, failure, deadline);
  return *opened;
}

}  // namespace lockstep

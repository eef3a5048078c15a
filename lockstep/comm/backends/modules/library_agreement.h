// What the ranks of a meeting tell each other about a library that a backend loads: on all of them it is
// there and the same, or all are told why not.
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

// Everybody's text by rank.
std::vector<std::string> tell_all(Meeting& meeting, const std::string& text, const std::string& failure,
                                  Deadline deadline);

// `library` is the name and version of what this rank has loaded, `failure` why it has not.
void agree_on_library(Meeting& meeting, std::string_view backend, const std::string& library,
                      const std::string& failure, Deadline deadline);

// Opens it, and agrees.
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

// Finds the entry of a list that a misspelt word probably means.
//
//   nearest("--verison", names) == "--version"
#pragma once

#include <span>
#include <string>

#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

// Returns the entry of `candidates` that differs least from `word` (edits of one character, at most a third
// of it); "" if there is none.
std::string nearest(const std::string& word, std::span<const std::string> candidates);

}  // namespace lockstep

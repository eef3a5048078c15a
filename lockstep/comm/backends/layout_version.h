// layout_version() names this build's layout of all data that ranks read of each other. These are shared
// segments, frames, trace memory, and the numbers of verbs, dtypes and purposes. Two builds with the same
// name understand each other.
//
//   if (theirs != layout_version()) ...             // job/introduction.h refuses that rank
#pragma once

#include <string>

namespace lockstep {

std::string layout_version();

}  // namespace lockstep

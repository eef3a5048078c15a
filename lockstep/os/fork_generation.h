// fork_generation: a number that is larger in a forked child than in its parent. An object that was made
// before a fork belongs to the parent and must not be used in the child.
//
//   const unsigned made_in = fork_generation();
//   ...
//   if (fork_generation() != made_in) throw Aborted("this process is a fork of the one that ...");
#pragma once

#include <string_view>

namespace lockstep {

unsigned fork_generation();

// The error text if a fork uses a group of its parent.
inline constexpr std::string_view IS_A_FORK =
    "this process is a fork of the one that joined the group; start ranks with exec, or call "
    "init_process_group() only after fork";

}  // namespace lockstep

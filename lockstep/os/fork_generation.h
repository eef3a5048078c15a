// How often this process is a fork: what was made before a fork belongs to the parent and must not be used here.
//
//   const unsigned made_in = fork_generation();
//   ...
//   if (fork_generation() != made_in) throw Aborted("this process is a fork of the one that ...");
#pragma once

namespace lockstep {

unsigned fork_generation();

}  // namespace lockstep

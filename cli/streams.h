// The meaning of --tee and --redirects, with torchrun's values: 0 nothing, 1 standard output, 2 standard
// error, 3 both, or a list by local rank such as "0:3,1:1" (ranks that are not named: 0). Pure.
//
//   --redirects 3            everything into the files, nothing on the console
//   --tee 3                  both
//   --redirects 3 --tee 0:1  as --redirects 3, and the standard output of local rank 0 on the console too
//
// Without either of them everything is shown and kept. With one of them, a stream that neither names is only
// shown.
#pragma once

#include <string>
#include <vector>

#include "lockstep/launch/launch_spec.h"

namespace lockstep::cli {

// By local rank; empty if both texts are empty. Throws UsageError.
std::vector<StreamChoice> stream_choices(const std::string& tee, const std::string& redirects, int ranks);

}  // namespace lockstep::cli

#include "lockstep/train/reproducible.h"

#include <ATen/Context.h>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/parallel/virtual_ranks/rank_seed.h"

namespace lockstep {

std::uint64_t set_seed(std::uint64_t seed, int rank) {
  if (rank < 0) throw InvalidArgument(lockstep::str("set_seed: rank ", rank, "; ranks begin at 0"));
  const std::uint64_t used = rank_seed(seed, rank);
  at::manual_seed(used);
  return used;
}

void use_deterministic_algorithms(bool mode, bool warn_only) {
  at::globalContext().setDeterministicAlgorithms(mode, warn_only);
  at::globalContext().setDeterministicCuDNN(mode);
  if (mode) at::globalContext().setBenchmarkCuDNN(false);
}

bool are_deterministic_algorithms_enabled() { return at::globalContext().deterministicAlgorithms(); }

void set_float32_matmul_precision(const std::string& precision) {
  if (precision != "highest" && precision != "high" && precision != "medium") {
    throw InvalidArgument(lockstep::str("set_float32_matmul_precision: \"", printable(precision),
                                        "\"; it is \"highest\", \"high\" or \"medium\""));
  }
  at::globalContext().setFloat32MatmulPrecision(precision);
}

std::string get_float32_matmul_precision() {
  switch (at::globalContext().float32MatmulPrecision()) {
    case at::Float32MatmulPrecision::HIGHEST: return "highest";
    case at::Float32MatmulPrecision::HIGH: return "high";
    default: return "medium";
  }
}

}  // namespace lockstep

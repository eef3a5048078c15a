#include "lockstep/train/reproducible.h"

#include <ATen/Context.h>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

// Sebastiano Vigna's splitmix64, a bijection.
std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

}  // namespace

std::uint64_t set_seed(std::uint64_t seed, int rank) {
  if (rank < 0) throw InvalidArgument(lockstep::str("set_seed: rank ", rank, "; ranks begin at 0"));
  const std::uint64_t used = rank == 0 ? seed : mixed(mixed(seed) + static_cast<std::uint64_t>(rank));
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

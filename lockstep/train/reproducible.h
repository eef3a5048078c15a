// Makes a run repeat itself: seeds, deterministic algorithms, the precision of float32 products.
//
//   dist::set_seed(42, dist::get_rank());  // each rank its own random numbers, the same in every run
//   dist::use_deterministic_algorithms(true);
//   dist::set_float32_matmul_precision("high");
//
// DistributedDataParallel gives all ranks the same first weights, whatever the seeds. A sampler has a seed of
// its own, which must be the same on all ranks. Dropout and augmentation differ by rank, and should.
// Collectives always give the same bits in every run.
//
// Threads     set_seed() reaches the default generators of all devices, which all threads share. The other
//             two functions set options of the process.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

// torch::manual_seed(). Rank 0, and a program that names no rank, get `seed` itself. Other ranks get a number
// mixed from both, so that no two pairs of seed and rank give the same one (rank_seed.h). With virtual ranks
// use seed_virtual_ranks(). Returns the number used. Throws InvalidArgument for a negative rank.
std::uint64_t set_seed(std::uint64_t seed, int rank = 0);

// torch.use_deterministic_algorithms. Operations that have a deterministic form use it; others throw
// c10::Error (or, with `warn_only`, warn). Memory of new tensors is filled. `mode` also turns cuDNN's
// benchmarking off and its deterministic algorithms on. On the CPU few operations are affected; the number of
// threads (at::set_num_threads) changes sums as well.
void use_deterministic_algorithms(bool mode, bool warn_only = false);
bool are_deterministic_algorithms_enabled();

// torch.set_float32_matmul_precision. "highest": float32 throughout. "high": TF32 or two bfloat16 numbers in
// place of one float32, if the device has them. "medium": bfloat16 inside, if the device has it. Throws
// InvalidArgument for another word.
void set_float32_matmul_precision(const std::string& precision);
std::string get_float32_matmul_precision();

}  // namespace lockstep

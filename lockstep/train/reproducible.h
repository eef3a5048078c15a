// What makes a run repeat itself: seeds, deterministic algorithms, the precision of float32 products.
//
//   dist::set_seed(42, dist::get_rank());  // each rank its own random numbers, the same in every run
//   dist::use_deterministic_algorithms(true);
//   dist::set_float32_matmul_precision("high");
//
// Models are made alike by DistributedDataParallel, whatever the seeds; samplers take a seed of their own,
// which must be the same on all ranks. What differs by rank is dropout and augmentation, and should.
// Collectives give the same bits in every run as it is.
//
// Threads     set_seed() reaches the default generators of all devices, which all threads share. The other
//             two are settings of the process.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

// torch::manual_seed(). Rank 0, and a program that names no rank, get `seed` itself; other ranks a number
// that is mixed from both, so that no two pairs of seed and rank meet (seed 42 on rank 1 is not seed 43 on
// rank 0, as it is with seed + rank). With virtual ranks use seed_virtual_ranks(). Returns the number used.
// Throws InvalidArgument for a negative rank.
std::uint64_t set_seed(std::uint64_t seed, int rank = 0);

// torch.use_deterministic_algorithms: operations that have a deterministic form use it, others throw
// c10::Error (or, with `warn_only`, warn). Memory of new tensors is filled. With `mode` also cuDNN's
// benchmarking is off and its deterministic algorithms are on. On CPU few operations are affected; the number
// of threads (at::set_num_threads) changes sums as well.
void use_deterministic_algorithms(bool mode, bool warn_only = false);
bool are_deterministic_algorithms_enabled();

// "highest" (float32 throughout), "high" (TF32 or two bfloat16 numbers in place of one float32) or "medium"
// (bfloat16 inside), where the device has it, as torch.set_float32_matmul_precision. Throws InvalidArgument
// for another word.
void set_float32_matmul_precision(const std::string& precision);
std::string get_float32_matmul_precision();

}  // namespace lockstep

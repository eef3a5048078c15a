// A CPU allocator for libtorch that keeps large blocks between training steps, in huge pages. libtorch takes
// CPU tensors from malloc. malloc maps large blocks anew at every step, and the kernel then faults them in
// page by page. Keeping the blocks makes a training step faster (bench/train_step.cpp).
//
//   lockstep::install_caching_allocator();            // DistributedDataParallel does this. Called before the
//                                                     // model is made, it also puts the parameters into huge
//                                                     // pages
//   train_epoch();
//   const auto stats = lockstep::allocator_stats();   // bytes in use and kept
//   lockstep::empty_cache();                          // before something else needs the memory
//
// Who         DistributedDataParallel installs it if init_process_group() made the job. A host program that
//             brings its own groups has to ask for it. LOCKSTEP_ALLOCATOR=off keeps libtorch's own allocator.
// What        os/block_cache.h: blocks of 64-byte alignment with at most 6.25 % slack. Kept blocks take at
//             most a quarter of the machine's memory, shared by the ranks of this machine. A block that was
//             not needed for 10 s goes back to the kernel. All of them go when memory is scarce.
// Tensors     made earlier stay with the allocator that made them. Both kinds mix freely.
// Fork        A child may go on making tensors, even if another thread made some during the fork. libtorch
//             itself does not promise that. If another thread calls an operator for the first time ever
//             during the fork, the child inherits it half looked up, and waits for ever when it calls the
//             same operator. So call once, before there are threads, every operator that children will call.
#pragma once

#include "lockstep/os/block_cache.h"

namespace lockstep {

// Makes it libtorch's CPU allocator. Returns true if it is now. Do not call it while other threads make
// tensors.
bool install_caching_allocator();
bool is_caching_allocator_installed();

BlockCacheStats allocator_stats();
void empty_cache();
void set_allocator_cap(std::size_t bytes);

}  // namespace lockstep

// A CPU allocator for libtorch that keeps large blocks between training steps, in huge pages. libtorch takes
// CPU tensors from malloc, which maps blocks anew and faults them in page by page at every step; keeping them
// made one process 1.2 times as fast with the MNIST CNN, 1.1 with ResNet-18 and 1.25 to 1.3 with a 25
// M-parameter MLP (bench/train_step.cpp).
//
//   lockstep::install_caching_allocator();            // DistributedDataParallel does this; before the model
//                                                     // is made it also
//  // puts the parameters into huge pages, which is worth 1 to 2 %
//   train_epoch();
//   const auto stats = lockstep::allocator_stats();   // bytes in use and kept
//   lockstep::empty_cache();                          // before something else needs the memory
//
// Who         DistributedDataParallel installs it when the job was joined with init_process_group(). A host
//             program that brings its own groups does not get it unless it asks. LOCKSTEP_ALLOCATOR=off keeps
//             libtorch's own.
// What        os/block_cache.h: 64-byte alignment, at most 6.25 % slack, a cap (a quarter of the machine's
//             memory, shared by the ranks of this machine), what was not needed for 10 s goes back to the
//             kernel, and all when memory is scarce.
// Tensors     made before stay with the allocator they came from; both kinds mix freely.
// Fork        A child may go on making tensors, also when another thread made some at that moment. libtorch
//             itself does not promise as much: while another thread calls an operator for the first time
//             ever, a child can inherit it half looked up, and waits for ever when it calls the same. Call
//             once what children will call, before there are threads.
#pragma once

#include "lockstep/os/block_cache.h"

namespace lockstep {

// Makes it libtorch's CPU allocator; true if it is from now on (or was already). Not while other threads make
// tensors.
bool install_caching_allocator();
bool is_caching_allocator_installed();

BlockCacheStats allocator_stats();
void empty_cache();
void set_allocator_cap(std::size_t bytes);

}  // namespace lockstep

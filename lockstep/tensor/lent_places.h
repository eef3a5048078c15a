// Lent places: memory in which the next tensor of a certain size will be made. A result then appears where it
// is needed, and need not be copied there. DDP lends autograd the places of gradients in its buckets.
//
//   offer_place(this, flat.data_ptr(), flat.nbytes(), flat);    // on this thread, to the next tensor of
//                                                               // exactly these bytes
//   at::Tensor x = at::empty_like(flat);                        // lies in the memory of `flat`
//   withdraw_places(this);                                      // offers that nobody took
//   is_lent(flat.data_ptr());                                   // true until the storage of x is gone
//
// Whose     Any tensor of that size may take an offer. So the offering code withdraws the offer before it
//           uses the place itself, and then checks is_lent(). An offer may be for a later tensor of that
//           size: `skip` says how many others are made before it. Watching one pass finds that number:
//
//   watch_tensors(this);  // on this thread, all that are made from now on
//   ...
//   const auto number = number_of_tensor(this, x);  // of the same size, how many were made before x?
//   stop_watching(this);
//
// The owner lives at least as long as the tensors that were made there.
// Needs     the caching allocator, because libtorch's own takes no offers. Places begin at multiples of 64
//           bytes and have at least BlockCache::SMALLEST bytes, because copying fewer bytes costs little.
// Threads   An offer is for the thread that made it. A tensor that was made there may be freed on any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <optional>

namespace lockstep {

// Offers a place for the next tensor of these bytes after `skip` others. Offers that are due together are
// taken in the order in which they were made. withdraw_places() takes back the offers of `who`.
void offer_place(const void* who, void* place, std::size_t bytes, at::Tensor owner, std::size_t skip = 0);
void withdraw_places(const void* who);
void withdraw_place(const void* place);
bool is_lent(const void* place);

// Starts a watch of `who` on this thread, or starts it anew. It sees up to 65,536 tensors of
// BlockCache::SMALLEST bytes or more.
void watch_tensors(const void* who);
void stop_watching(const void* who);
// Empty if the tensor was not made on this thread since watch_tensors(), or its memory does not have its
// size.
std::optional<std::size_t> number_of_tensor(const void* who, const at::Tensor& tensor);

// Called by the allocator. Returns the offered place for a tensor of these bytes, which is lent from now on;
// null if there is none.
void* take_offered_place(std::size_t bytes);
// Notes that a tensor of these bytes was made in `block`.
void note_tensor(std::size_t bytes, const void* block);
// Returns whether `block` was lent. It is not lent any more.
bool return_lent_place(void* block);
// Called before and after fork(), as BlockCache's functions.
void lent_places_before_fork();
void lent_places_after_fork();

}  // namespace lockstep

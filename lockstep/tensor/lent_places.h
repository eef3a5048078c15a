// Lent places: memory that the next tensor of a certain size shall be made in, so that a result appears where
// it is needed instead of being copied there. DDP lends autograd the places of gradients in its buckets.
//
//   offer_place(this, flat.data_ptr(), flat.nbytes(), flat);    // on this thread, to the next tensor of
//                                                               // exactly these bytes
//   at::Tensor x = at::empty_like(flat);                        // lies in the memory of `flat`
//   withdraw_places(this);                                      // offers that nobody took
//   is_lent(flat.data_ptr());                                   // true until the storage of x is gone
//
// Whose     Any tensor of that size may take an offer, so whoever offers withdraws it before it uses the
//           place itself, and then looks at is_lent(). Who knows which of several tensors of one size shall
//           have a place says how many others are made before it (`skip`), and finds out by watching once:
//
//   watch_tensors(this);  // on this thread, all that are made from now on
//   ...
//   const auto number = number_of_tensor(this, x);  // of the same size, how many were made before x?
//   stop_watching(this);
//
//           The owner lives at least as long as what was made there.
// Needs     the caching allocator: libtorch's own takes no offers. Places at multiples of 64 bytes, of
//           BlockCache::SMALLEST bytes or more, because a copy of less costs nothing.
// Threads   an offer is for the thread that made it. What was made there may be freed on any.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <optional>

namespace lockstep {

// For the next tensor of these bytes after `skip` others. Offers that are due together are taken in the order
// in which they were made. `who` names them for withdraw_places().
void offer_place(const void* who, void* place, std::size_t bytes, at::Tensor owner, std::size_t skip = 0);
void withdraw_places(const void* who);
void withdraw_place(const void* place);
bool is_lent(const void* place);

// One watch of `who` on this thread, begun anew. It sees tensors of BlockCache::SMALLEST bytes or more,
// 65,536 of them.
void watch_tensors(const void* who);
void stop_watching(const void* who);
// Empty for a tensor that was not made on this thread since watch_tensors(), or not with memory of its own
// size.
std::optional<std::size_t> number_of_tensor(const void* who, const at::Tensor& tensor);

// For the allocator. The offered place for a tensor of these bytes, lent from now on; null without one.
void* take_offered_place(std::size_t bytes);
// A tensor of these bytes was made in `block`.
void note_tensor(std::size_t bytes, const void* block);
// Whether `block` was lent; it is not any more.
bool return_lent_place(void* block);
// Around fork(), as BlockCache's.
void lent_places_before_fork();
void lent_places_after_fork();

}  // namespace lockstep

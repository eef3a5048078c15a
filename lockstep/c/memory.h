// Memory on which collectives copy nothing in or out.
//
//   void* memory = NULL;
//   float* gradients = NULL;
//   if (lockstep_allocate_shared(LOCKSTEP_WORLD, 1000 * sizeof(float), &memory) != LOCKSTEP_OK)
//     fail(lockstep_error_text());
//   gradients = (float*)memory;
//   lockstep_all_reduce(LOCKSTEP_WORLD, gradients, 1000, LOCKSTEP_FLOAT32, LOCKSTEP_AVG, NULL);
//   lockstep_free_shared(memory);
//
// Memory      is zeroed and aligned to 64 bytes. Any part of it may be passed to any verb of the group. It
//             stays valid when the group is left, until it is freed.
// Who         lockstep_allocate_shared: this rank alone. lockstep_allocate_common: every rank of the group.
// Blocks      lockstep_allocate_common, until all have called it.
// Order       of common memory: what one rank writes, another sees behind a collective that both have called.
// Fails       SYSTEM: the memory cannot be reserved. MISMATCH: ranks ask for different sizes of common
//             memory.
#pragma once

#include "lockstep/c/types.h"

// Memory in this rank's segment, plain memory if the backend has none.
LOCKSTEP_C_API int lockstep_allocate_shared(lockstep_group group, size_t bytes, void** memory);

// One piece of memory that all ranks of the group see, each at an address of its own. NULL on every rank,
// with LOCKSTEP_OK, if the group's ranks have no memory in common (all backends but shm, thread and self).
LOCKSTEP_C_API int lockstep_allocate_common(lockstep_group group, size_t bytes, void** memory);

// Frees memory of the two above, whose works must be done. INVALID_HANDLE: it is NULL, was freed, or is no
// address that these functions gave.
LOCKSTEP_C_API int lockstep_free_shared(void* memory);

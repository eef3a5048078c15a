// Stores: where processes find each other that have no launcher (lockstep_init with a store,
// lockstep_connect).
//
//   lockstep_store store = 0;
//   lockstep_group group = 0;
//   int rank = 1, size = 2;  // from the program's own arguments, say
//   if (lockstep_store_open_file("/shared/job-17/store", &store) != LOCKSTEP_OK) fail(lockstep_error_text());
//   if (lockstep_connect(store, rank, size, NULL, &group) != LOCKSTEP_OK) fail(lockstep_error_text());
//   lockstep_barrier(group, NULL);
//   lockstep_group_free(group);
//   lockstep_store_free(store);
//
// Keys        are texts, values byte strings of at most 1 MiB.
// Blocks      lockstep_store_connect until the server is there; lockstep_store_get until the key is there.
// Trust       every process that can use a store can take part. A store over TCP asks for the secret that the
//             file has: 32 bytes, readable by this user alone (head -c 32 /dev/urandom > FILE; chmod 600
//             FILE).
// Fails       STORE, which names the missing key, or the server that has another secret. TIMEOUT: the server
//             did not come. SYSTEM: the file, or the address, cannot be had. INVALID_ARGUMENT: the secret
//             file.
// Lifetime    lockstep_store_free() ends the connection, or the server. Ranks that have met do not need the
//             store any more. The process that serves it frees it when all have met.
#pragma once

#include "lockstep/c/types.h"

// In a file that all processes see; a new file for each job.
LOCKSTEP_C_API int lockstep_store_open_file(const char* path, lockstep_store* store);
// One process serves a store and uses it. `address`, in digits, is where the others reach this process; NULL
// is 127.0.0.1, for processes of this machine. `port` 0 is one that is free; `chosen_port`, if not NULL,
// becomes the port.
LOCKSTEP_C_API int lockstep_store_serve(const char* address, int port, const char* secret_file,
                                        int* chosen_port, lockstep_store* store);
// The others connect to it. `timeout_ms` is the longest time to wait for the server, 0 five minutes.
LOCKSTEP_C_API int lockstep_store_connect(const char* host, int port, const char* secret_file,
                                          int64_t timeout_ms, lockstep_store* store);
LOCKSTEP_C_API int lockstep_store_free(lockstep_store store);

LOCKSTEP_C_API int lockstep_store_set(lockstep_store store, const char* key, const void* bytes, size_t size);
// A list of one entry (objects.h). `timeout_ms` 0: five minutes.
LOCKSTEP_C_API int lockstep_store_get(lockstep_store store, const char* key, int64_t timeout_ms,
                                      lockstep_objects* value);
// Adds to a decimal number, 0 if the key is missing. `sum`, if not NULL, becomes the result.
LOCKSTEP_C_API int lockstep_store_add(lockstep_store store, const char* key, int64_t amount, int64_t* sum);

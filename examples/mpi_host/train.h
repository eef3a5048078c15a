/* What a host program in C or Fortran calls: trains a model on the ranks of its communicator. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

/* `comm` points to the host's MPI_Comm. Returns 0, or 1 after an error or a wrong result, which is printed.
 */
int train_on(const void* comm);
/* The same with Fortran's handle. */
int train_on_fortran(int comm);

#ifdef __cplusplus
}
#endif

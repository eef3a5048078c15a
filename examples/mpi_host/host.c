/* A program in C that has called MPI itself: the ranks split into two halves, and each half trains a model of its own on its
 * communicator, while MPI_COMM_WORLD stays the program's.
 *
 *   mpirun -n 4 build/examples/mpi_host_c_openmpi
 */
#include <mpi.h>
#include <stdio.h>

#include "train.h"

int main(int argc, char** argv) {
  int provided, rank, size, failed, failures;
  MPI_Comm half;

  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided); /* Lockstep calls MPI from a thread of its own */
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_split(MPI_COMM_WORLD, rank < size / 2, 0, &half);

  failed = train_on(&half);
  MPI_Allreduce(&failed, &failures, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf("host in C: %d of %d ranks failed\n", failures, size);

  MPI_Comm_free(&half);
  MPI_Finalize();
  return failures != 0;
}

! A program in Fortran that has called MPI itself and trains a model on a communicator of its own.
!
!   mpirun -n 3 build/examples/mpi_host_fortran_openmpi
program host
  use iso_c_binding
  implicit none
  include 'mpif.h'

  interface
    integer(c_int) function train_on_fortran(comm) bind(c)
      use iso_c_binding
      integer(c_int), value :: comm
    end function
  end interface

  integer :: provided, rank, comm, failed, failures, code

  call MPI_Init_thread(MPI_THREAD_MULTIPLE, provided, code)  ! Lockstep calls MPI from a thread of its own
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, code)
  call MPI_Comm_dup(MPI_COMM_WORLD, comm, code)

  failed = train_on_fortran(int(comm, c_int))
  call MPI_Allreduce(failed, failures, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, code)
  if (rank == 0) print '(a, i0, a)', 'host in Fortran: ', failures, ' ranks failed'

  call MPI_Comm_free(comm, code)
  call MPI_Finalize(code)
  if (failures /= 0) stop 1
end program

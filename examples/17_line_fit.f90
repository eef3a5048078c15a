! Fits a line to points that the ranks share out, by gradient descent: a program in Fortran.
!
!   build/lockstep run -n 2 build/examples/line_fit_fortran
!   [0] 2 ranks fitted y = 2.00 x + 1.00 to 200 points
!
!   build/examples/line_fit_fortran                         ! alone, with its own 100 points
program line_fit
  use, intrinsic :: iso_fortran_env, only: error_unit
  use lockstep
  implicit none

  integer, parameter :: points = 100, steps = 400
  real(c_double) :: x(points), y(points), errors(points), mean(2), line(2) = 0
  integer(c_int64_t) :: counting
  integer(c_int64_t), asynchronous :: counted(1) = points
  integer(c_int) :: rank, ranks
  integer :: i, step

  call check(lockstep_init())  ! the environment decides; without a launcher this is a job of one
  call check(lockstep_rank(LOCKSTEP_WORLD, rank))
  call check(lockstep_size(LOCKSTEP_WORLD, ranks))
  x = [(real(i * ranks + rank, c_double) / (points * ranks), i = 0, points - 1)]  ! every size-th point
  y = 2 * x + 1

  ! With a work at the end a call does not block: the points are counted while the line is fitted.
  call check(lockstep_all_reduce(LOCKSTEP_WORLD, counted, 1_c_size_t, LOCKSTEP_INT64, LOCKSTEP_SUM, counting))
  do step = 1, steps
    errors = line(1) * x + line(2) - y
    mean = [sum(errors * x), sum(errors)] / points
    call check(lockstep_all_reduce(LOCKSTEP_WORLD, mean, 2_c_size_t, LOCKSTEP_FLOAT64, LOCKSTEP_AVG))
    line = line - mean
  end do
  call check(lockstep_work_wait(counting, 0_c_int64_t))
  call check(lockstep_work_free(counting))
  if (rank == 0) print '(i0, a, f0.2, a, f0.2, a, i0, a)', ranks, ' ranks fitted y = ', line(1), ' x + ', &
    line(2), ' to ', counted(1), ' points'
  call check(lockstep_shutdown())

contains

  ! The text names rank, group, operation and remedy.
  subroutine check(code)
    integer(c_int), intent(in) :: code
    if (code == LOCKSTEP_OK) return
    write (error_unit, '(a)') lockstep_error_message()
    error stop
  end subroutine
end program

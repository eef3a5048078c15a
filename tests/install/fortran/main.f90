! A program in Fortran that knows the installed package alone.
program consumer
  use lockstep
  implicit none
  real(c_double) :: total(1) = 1
  integer(c_int) :: ranks
  if (lockstep_init() /= LOCKSTEP_OK) error stop lockstep_error_message()
  if (lockstep_all_reduce(LOCKSTEP_WORLD, total, 1_c_size_t, LOCKSTEP_FLOAT64, LOCKSTEP_SUM) /= LOCKSTEP_OK) &
    error stop lockstep_error_message()
  if (lockstep_size(LOCKSTEP_WORLD, ranks) /= LOCKSTEP_OK) error stop lockstep_error_message()
  if (abs(total(1) - ranks) > 0) error stop 'wrong sum'
  if (lockstep_shutdown() /= LOCKSTEP_OK) error stop lockstep_error_message()
end program

! One rank of a job in Fortran: the parts of the module that are not as in C, and verbs over its own types.
!
!   lockstep run -n 3 build/tests/c/fortran_program
program ranks
  use, intrinsic :: iso_fortran_env, only: error_unit
  use lockstep
  implicit none

  integer(c_int) :: rank, all

  call layouts()
  call join()
  call verbs()
  call works()
  call groups()
  call objects_and_memory()
  call ok(lockstep_shutdown())
  call expect(lockstep_shutdown() == LOCKSTEP_ERROR_NOT_INITIALIZED, 'a second shutdown')

contains

  subroutine ok(code)
    integer(c_int), intent(in) :: code
    if (code == LOCKSTEP_OK) return
    write (error_unit, '(2a)') lockstep_text(lockstep_code_name(code)) // ': ', lockstep_error_message()
    error stop
  end subroutine

  subroutine expect(holds, what)
    logical, intent(in) :: holds
    character(len=*), intent(in) :: what
    if (holds) return
    write (error_unit, '(a, i0, 2a)') 'rank ', rank, ': wrong: ', what
    error stop
  end subroutine

  ! The structs are as large as those of C.
  subroutine layouts()
    type(lockstep_init_options) :: init
    type(lockstep_group_options) :: group
    type(lockstep_connect_options) :: connect
    call expect(c_sizeof(init) == init%struct_size, 'lockstep_init_options')
    call expect(c_sizeof(group) == group%struct_size, 'lockstep_group_options')
    call expect(c_sizeof(connect) == connect%struct_size, 'lockstep_connect_options')
  end subroutine

  subroutine join()
    type(lockstep_init_options) :: options
    call expect(lockstep_barrier(LOCKSTEP_WORLD) == LOCKSTEP_ERROR_NOT_INITIALIZED, 'a barrier before init')
    call expect(index(lockstep_error_message(), 'call lockstep_init() first') > 0, 'its text')
    options%timeout_ms = 60000
    call ok(lockstep_init(options))
    call ok(lockstep_rank(LOCKSTEP_WORLD, rank))
    call ok(lockstep_size(LOCKSTEP_WORLD, all))
  end subroutine

  subroutine verbs()
    complex(c_double) :: z(2, 3)
    real(c_float) :: x(4)
    integer(c_int8_t) :: mine(2), every(2 * all)
    integer(c_size_t) :: counts(all)
    integer(c_int32_t) :: uneven(all * (all + 1) / 2), part(rank + 1)
    integer :: r
    z = cmplx(rank, 1, c_double)
    call ok(lockstep_all_reduce(LOCKSTEP_WORLD, z, size(z, kind=c_size_t), LOCKSTEP_COMPLEX128, LOCKSTEP_SUM))
    call expect(all_equal(z, cmplx(all * (all - 1) / 2, all, c_double)), 'all_reduce of complex numbers')
    x = real(rank, c_float)
    call ok(lockstep_broadcast(LOCKSTEP_WORLD, x, 4_c_size_t, LOCKSTEP_FLOAT32, all - 1))
    call expect(maxval(abs(x - (all - 1))) == 0, 'broadcast')
    mine = int(rank, c_int8_t)
    call ok(lockstep_all_gather(LOCKSTEP_WORLD, mine, every, 2_c_size_t, LOCKSTEP_INT8))
    call expect(sum(int(every)) == all * (all - 1) .and. every(2 * all) == all - 1, 'all_gather')
    counts = [(int(r, c_size_t), r = 1, all)]
    part = rank
    call ok(lockstep_all_gatherv(LOCKSTEP_WORLD, part, uneven, counts, LOCKSTEP_INT32))
    call expect(count(uneven == rank) == rank + 1, 'all_gatherv')
  end subroutine

  logical function all_equal(z, value)
    complex(c_double), intent(in) :: z(:, :), value
    all_equal = maxval(abs(z - value)) == 0
  end function

  subroutine works()
    real(c_double), asynchronous :: first(3), second(3)
    integer(c_int64_t) :: work(2)
    integer(c_int) :: from, done
    first = 1
    second = 2
    call ok(lockstep_all_reduce(LOCKSTEP_WORLD, first, 3_c_size_t, LOCKSTEP_FLOAT64, LOCKSTEP_SUM, work(1)))
    call ok(lockstep_all_reduce(LOCKSTEP_WORLD, second, 3_c_size_t, LOCKSTEP_FLOAT64, LOCKSTEP_SUM, work(2)))
    call ok(lockstep_work_wait(work(2), 0_c_int64_t))
    call expect(maxval(abs(second - 2 * all)) == 0, 'the second work')
    call ok(lockstep_work_wait(work(1), 0_c_int64_t))
    call ok(lockstep_work_test(work(1), done))
    call expect(done == 1 .and. maxval(abs(first - all)) == 0, 'the first work')
    call ok(lockstep_work_free(work(1)))
    call ok(lockstep_work_free(work(2)))
    call expect(lockstep_work_free(work(2)) == LOCKSTEP_ERROR_INVALID_HANDLE, 'a work that was freed')
    if (all == 1) return
    call ok(lockstep_send(LOCKSTEP_WORLD, first, 3_c_size_t, LOCKSTEP_FLOAT64, mod(rank + 1, all), 0, work(1)))
    call ok(lockstep_recv(LOCKSTEP_WORLD, second, 3_c_size_t, LOCKSTEP_FLOAT64, LOCKSTEP_ANY_SOURCE, 0, from))
    call expect(from == mod(rank + all - 1, all), 'the source')
    call ok(lockstep_work_wait(work(1), 0_c_int64_t))
    call ok(lockstep_work_free(work(1)))
  end subroutine

  ! A name is a text that ends with c_null_char.
  subroutine groups()
    type(lockstep_group_options) :: options
    character(kind=c_char, len=6), target :: name = 'first' // c_null_char
    integer(c_int64_t) :: group
    integer(c_int) :: mine
    type(c_ptr) :: text
    options%name = c_loc(name)
    call ok(lockstep_new_group([0_c_int], 1_c_size_t, options, group))
    call ok(lockstep_rank(group, mine))
    call expect(mine == merge(0, -1, rank == 0), 'the rank in the group')
    call ok(lockstep_group_name(group, text))
    call expect(lockstep_text(text) == merge('first', 'none ', rank == 0), 'the name')
    call ok(lockstep_group_free(group))
  end subroutine

  subroutine objects_and_memory()
    character(kind=c_char, len=3) :: word = 'abc'
    integer(c_int64_t) :: objects
    integer(c_size_t) :: bytes
    type(c_ptr) :: place, memory
    character(kind=c_char), pointer :: letters(:)
    real(c_double), pointer :: x(:)
    call ok(lockstep_broadcast_object(LOCKSTEP_WORLD, [word], int(len(word), c_size_t), all - 1, objects))
    call ok(lockstep_objects_get(objects, 0_c_size_t, place, bytes))
    call c_f_pointer(place, letters, [bytes])
    call expect(bytes == 3 .and. letters(3) == 'c', 'the object')
    call ok(lockstep_objects_free(objects))
    call ok(lockstep_allocate_shared(LOCKSTEP_WORLD, 800_c_size_t, memory))
    call c_f_pointer(memory, x, [100])
    x = rank
    call ok(lockstep_all_reduce(LOCKSTEP_WORLD, x, 100_c_size_t, LOCKSTEP_FLOAT64, LOCKSTEP_MAX))
    call expect(maxval(abs(x - (all - 1))) == 0, 'shared memory')
    call ok(lockstep_free_shared(memory))
  end subroutine
end program

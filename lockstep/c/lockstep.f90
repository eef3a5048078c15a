! The C interface of Lockstep for Fortran: every function of lockstep.h, its constants and its options.
!
!   use lockstep
!   real(c_float) :: loss(1) = 0.25
!   integer(c_int) :: rank
!   if (lockstep_init() /= LOCKSTEP_OK) error stop lockstep_error_message()
!   if (lockstep_rank(LOCKSTEP_WORLD, rank) /= LOCKSTEP_OK) error stop lockstep_error_message()
!   if (lockstep_all_reduce(LOCKSTEP_WORLD, loss, size(loss, kind=c_size_t), LOCKSTEP_FLOAT32, LOCKSTEP_AVG) &
!       /= LOCKSTEP_OK) error stop lockstep_error_message()
!
! Build        compile this file with the program and link liblockstep_core.so:
!                gfortran $(pkg-config --variable=fortran lockstep) program.f90 $(pkg-config --libs lockstep)
!              In CMake, target_link_libraries(program PRIVATE lockstep::fortran) does both. The module's own
!              kinds, such as c_float, come with it.
! Manual       the headers of C, by the names of the functions. What follows is different here.
! Work         is optional. A call without it blocks. A buffer of a call with it must be a contiguous array that
!              stays where it is, with the attribute asynchronous, until the work is done.
! Buffers      are arrays of any type and kind; a scalar is passed as an array of one element. On ranks that
!              are not the root, a buffer that only the root has may be any array.
! Texts        end with c_null_char: "tcp" // c_null_char. lockstep_text() makes a Fortran text of a C one.
! Options      begin with their defaults. Leaving them out is the same.
! Handles      are integer(c_int64_t); 0 is null.
module lockstep
  use, intrinsic :: iso_c_binding
  implicit none
  public

  integer(c_int64_t), parameter :: LOCKSTEP_WORLD = 1
  integer(c_int), parameter :: LOCKSTEP_ANY_SOURCE = -1

  ! lockstep_dtype
  integer(c_int), parameter :: LOCKSTEP_FLOAT64 = 0
  integer(c_int), parameter :: LOCKSTEP_FLOAT32 = 1
  integer(c_int), parameter :: LOCKSTEP_FLOAT16 = 2
  integer(c_int), parameter :: LOCKSTEP_BFLOAT16 = 3
  integer(c_int), parameter :: LOCKSTEP_INT8 = 4
  integer(c_int), parameter :: LOCKSTEP_UINT8 = 5
  integer(c_int), parameter :: LOCKSTEP_INT16 = 6
  integer(c_int), parameter :: LOCKSTEP_UINT16 = 7
  integer(c_int), parameter :: LOCKSTEP_INT32 = 8
  integer(c_int), parameter :: LOCKSTEP_UINT32 = 9
  integer(c_int), parameter :: LOCKSTEP_INT64 = 10
  integer(c_int), parameter :: LOCKSTEP_UINT64 = 11
  integer(c_int), parameter :: LOCKSTEP_BOOL = 12
  integer(c_int), parameter :: LOCKSTEP_COMPLEX64 = 13
  integer(c_int), parameter :: LOCKSTEP_COMPLEX128 = 14

  ! lockstep_op
  integer(c_int), parameter :: LOCKSTEP_SUM = 0
  integer(c_int), parameter :: LOCKSTEP_AVG = 1
  integer(c_int), parameter :: LOCKSTEP_PRODUCT = 2
  integer(c_int), parameter :: LOCKSTEP_MIN = 3
  integer(c_int), parameter :: LOCKSTEP_MAX = 4
  integer(c_int), parameter :: LOCKSTEP_BAND = 5
  integer(c_int), parameter :: LOCKSTEP_BOR = 6
  integer(c_int), parameter :: LOCKSTEP_BXOR = 7

  ! lockstep_code
  integer(c_int), parameter :: LOCKSTEP_OK = 0
  integer(c_int), parameter :: LOCKSTEP_ERROR_INVALID_ARGUMENT = 1
  integer(c_int), parameter :: LOCKSTEP_ERROR_TIMEOUT = 2
  integer(c_int), parameter :: LOCKSTEP_ERROR_PEER_LOST = 3
  integer(c_int), parameter :: LOCKSTEP_ERROR_MISMATCH = 4
  integer(c_int), parameter :: LOCKSTEP_ERROR_ABORTED = 5
  integer(c_int), parameter :: LOCKSTEP_ERROR_STORE = 6
  integer(c_int), parameter :: LOCKSTEP_ERROR_FORMAT = 7
  integer(c_int), parameter :: LOCKSTEP_ERROR_SYSTEM = 8
  integer(c_int), parameter :: LOCKSTEP_ERROR_INTERNAL = 9
  integer(c_int), parameter :: LOCKSTEP_ERROR_SPAWN = 10
  integer(c_int), parameter :: LOCKSTEP_ERROR_BACKEND = 11
  integer(c_int), parameter :: LOCKSTEP_ERROR_INVALID_HANDLE = 100
  integer(c_int), parameter :: LOCKSTEP_ERROR_NOT_INITIALIZED = 101
  integer(c_int), parameter :: LOCKSTEP_ERROR_OUT_OF_MEMORY = 102

  ! lockstep_log_level
  integer(c_int), parameter :: LOCKSTEP_LOG_INFO = 0
  integer(c_int), parameter :: LOCKSTEP_LOG_WARNING = 1
  integer(c_int), parameter :: LOCKSTEP_LOG_ERROR = 2

  ! lockstep_named_kind
  integer(c_int), parameter :: LOCKSTEP_NAMED_ALLREDUCE = 0
  integer(c_int), parameter :: LOCKSTEP_NAMED_ALLGATHER = 1
  integer(c_int), parameter :: LOCKSTEP_NAMED_BROADCAST = 2
  integer(c_int), parameter :: LOCKSTEP_NAMED_ALLTOALL = 3
  integer(c_int), parameter :: LOCKSTEP_NAMED_REDUCESCATTER = 4
  integer(c_int), parameter :: LOCKSTEP_NAMED_BARRIER = 5
  integer(c_int), parameter :: LOCKSTEP_NAMED_JOIN = 6

  ! lockstep_named_op
  integer(c_int), parameter :: LOCKSTEP_NAMED_AVERAGE = 0
  integer(c_int), parameter :: LOCKSTEP_NAMED_SUM = 1
  integer(c_int), parameter :: LOCKSTEP_NAMED_ADASUM = 2
  integer(c_int), parameter :: LOCKSTEP_NAMED_MIN = 3
  integer(c_int), parameter :: LOCKSTEP_NAMED_MAX = 4
  integer(c_int), parameter :: LOCKSTEP_NAMED_PRODUCT = 5

  type, bind(c) :: lockstep_init_options
    integer(c_size_t) :: struct_size = 64
    type(c_ptr) :: backend = c_null_ptr
    type(c_ptr) :: init_method = c_null_ptr
    integer(c_int) :: rank = -1
    integer(c_int) :: world_size = -1
    integer(c_int64_t) :: store = 0
    integer(c_int64_t) :: timeout_ms = 0
    integer(c_int64_t) :: warn_after_ms = 0
    integer(c_int) :: virtual_ranks = 0
    integer(c_int) :: reserved = 0
  end type

  type, bind(c) :: lockstep_group_options
    integer(c_size_t) :: struct_size = 40
    type(c_ptr) :: name = c_null_ptr
    type(c_ptr) :: backend = c_null_ptr
    integer(c_int64_t) :: timeout_ms = 0
    integer(c_int) :: use_local_synchronization = 0
    integer(c_int) :: reserved = 0
  end type

  type, bind(c) :: lockstep_connect_options
    integer(c_size_t) :: struct_size = 56
    type(c_ptr) :: name = c_null_ptr
    type(c_ptr) :: backend = c_null_ptr
    integer(c_int64_t) :: timeout_ms = 0
    integer(c_int64_t) :: warn_after_ms = 0
    type(c_ptr) :: secret = c_null_ptr
    type(c_ptr) :: local_address = c_null_ptr
  end type

  type, bind(c) :: lockstep_named_request
    integer(c_size_t) :: struct_size = 88
    type(c_ptr) :: name = c_null_ptr
    integer(c_int) :: kind = LOCKSTEP_NAMED_ALLREDUCE
    integer(c_int) :: process_set = 0
    integer(c_int) :: dtype = 0
    integer(c_int) :: op = LOCKSTEP_NAMED_AVERAGE
    integer(c_int) :: root = 0
    integer(c_int) :: dimensions = 0
    type(c_ptr) :: shape = c_null_ptr
    type(c_ptr) :: splits = c_null_ptr
    real(c_double) :: prescale = 1
    real(c_double) :: postscale = 1
    type(c_ptr) :: input = c_null_ptr
    type(c_ptr) :: output = c_null_ptr
  end type

  interface

    ! error.h
    type(c_ptr) function lockstep_error_text() bind(c)
      import :: c_ptr
    end function
    integer(c_int) function lockstep_error_peer() bind(c)
      import :: c_int
    end function
    integer(c_int) function lockstep_error_number() bind(c)
      import :: c_int
    end function
    type(c_ptr) function lockstep_code_name(code) bind(c)
      import :: c_int, c_ptr
      integer(c_int), value :: code
    end function
    type(c_ptr) function lockstep_version() bind(c)
      import :: c_ptr
    end function
    integer(c_int) function lockstep_c_version() bind(c)
      import :: c_int
    end function
    integer(c_int) function lockstep_set_log_sink(sink, context) bind(c)
      import :: c_funptr, c_int, c_ptr
      type(c_funptr), value :: sink
      type(c_ptr), value :: context
    end function
    ! job.h
    integer(c_int) function lockstep_init(options) bind(c)
      import :: c_int, lockstep_init_options
      type(lockstep_init_options), intent(in), optional :: options
    end function
    integer(c_int) function lockstep_shutdown() bind(c)
      import :: c_int
    end function
    integer(c_int) function lockstep_is_initialized() bind(c)
      import :: c_int
    end function
    integer(c_int) function lockstep_local_rank(rank) bind(c)
      import :: c_int
      integer(c_int), intent(out) :: rank
    end function
    integer(c_int) function lockstep_local_size(size) bind(c)
      import :: c_int
      integer(c_int), intent(out) :: size
    end function
    integer(c_int) function lockstep_node_rank(rank) bind(c)
      import :: c_int
      integer(c_int), intent(out) :: rank
    end function
    integer(c_int) function lockstep_node_count(count) bind(c)
      import :: c_int
      integer(c_int), intent(out) :: count
    end function
    ! group.h
    integer(c_int) function lockstep_new_group(ranks, count, options, group) bind(c)
      import :: c_int, c_int64_t, c_size_t, lockstep_group_options
      integer(c_int), intent(in) :: ranks(*)
      integer(c_size_t), value :: count
      type(lockstep_group_options), intent(in), optional :: options
      integer(c_int64_t), intent(out) :: group
    end function
    integer(c_int) function lockstep_split_group(parent, color, key, options, group) bind(c)
      import :: c_int, c_int64_t, lockstep_group_options
      integer(c_int64_t), value :: parent
      integer(c_int), value :: color, key
      type(lockstep_group_options), intent(in), optional :: options
      integer(c_int64_t), intent(out) :: group
    end function
    integer(c_int) function lockstep_connect(store, rank, size, options, group) bind(c)
      import :: c_int, c_int64_t, lockstep_connect_options
      integer(c_int64_t), value :: store
      integer(c_int), value :: rank, size
      type(lockstep_connect_options), intent(in), optional :: options
      integer(c_int64_t), intent(out) :: group
    end function
    integer(c_int) function lockstep_group_free(group) bind(c)
      import :: c_int, c_int64_t
      integer(c_int64_t), value :: group
    end function
    integer(c_int) function lockstep_group_abort(group, reason) bind(c)
      import :: c_char, c_int, c_int64_t
      integer(c_int64_t), value :: group
      character(kind=c_char), intent(in) :: reason(*)
    end function
    integer(c_int) function lockstep_rank(group, rank) bind(c)
      import :: c_int, c_int64_t
      integer(c_int64_t), value :: group
      integer(c_int), intent(out) :: rank
    end function
    integer(c_int) function lockstep_size(group, size) bind(c)
      import :: c_int, c_int64_t
      integer(c_int64_t), value :: group
      integer(c_int), intent(out) :: size
    end function
    integer(c_int) function lockstep_group_ranks(group, ranks) bind(c)
      import :: c_int, c_int64_t
      integer(c_int64_t), value :: group
      integer(c_int), intent(out) :: ranks(*)
    end function
    integer(c_int) function lockstep_group_rank(group, global_rank, group_rank) bind(c)
      import :: c_int, c_int64_t
      integer(c_int64_t), value :: group
      integer(c_int), value :: global_rank
      integer(c_int), intent(out) :: group_rank
    end function
    integer(c_int) function lockstep_global_rank(group, group_rank, global_rank) bind(c)
      import :: c_int, c_int64_t
      integer(c_int64_t), value :: group
      integer(c_int), value :: group_rank
      integer(c_int), intent(out) :: global_rank
    end function
    integer(c_int) function lockstep_group_name(group, name) bind(c)
      import :: c_int, c_int64_t, c_ptr
      integer(c_int64_t), value :: group
      type(c_ptr), intent(out) :: name
    end function
    integer(c_int) function lockstep_group_backend(group, backend) bind(c)
      import :: c_int, c_int64_t, c_ptr
      integer(c_int64_t), value :: group
      type(c_ptr), intent(out) :: backend
    end function
    ! work.h
    integer(c_int) function lockstep_work_wait(work, timeout_ms) bind(c)
      import :: c_int, c_int64_t
      integer(c_int64_t), value :: work, timeout_ms
    end function
    integer(c_int) function lockstep_work_test(work, done) bind(c)
      import :: c_int, c_int64_t
      integer(c_int64_t), value :: work
      integer(c_int), intent(out) :: done
    end function
    integer(c_int) function lockstep_work_source(work, rank) bind(c)
      import :: c_int, c_int64_t
      integer(c_int64_t), value :: work
      integer(c_int), intent(out) :: rank
    end function
    integer(c_int) function lockstep_work_free(work) bind(c)
      import :: c_int, c_int64_t
      integer(c_int64_t), value :: work
    end function
    ! collectives.h
    integer(c_int) function lockstep_barrier(group, work) bind(c)
      import :: c_int, c_int64_t
      integer(c_int64_t), value :: group
      integer(c_int64_t), intent(out), optional :: work
    end function
    integer(c_int) function lockstep_monitored_barrier(group, timeout_ms, wait_all_ranks) bind(c)
      import :: c_int, c_int64_t
      integer(c_int64_t), value :: group, timeout_ms
      integer(c_int), value :: wait_all_ranks
    end function
    integer(c_int) function lockstep_all_reduce(group, data, count, dtype, op, work) bind(c)
      import :: c_int, c_int64_t, c_size_t
      integer(c_int64_t), value :: group
      type(*), intent(inout), asynchronous :: data(*)
      integer(c_size_t), value :: count
      integer(c_int), value :: dtype, op
      integer(c_int64_t), intent(out), optional :: work
    end function
    integer(c_int) function lockstep_all_reduce_coalesced(group, data, counts, buffers, dtype, op, work) bind(c)
      import :: c_int, c_int64_t, c_ptr, c_size_t
      integer(c_int64_t), value :: group
      type(c_ptr), intent(in) :: data(*)
      integer(c_size_t), intent(in) :: counts(*)
      integer(c_size_t), value :: buffers
      integer(c_int), value :: dtype, op
      integer(c_int64_t), intent(out), optional :: work
    end function
    integer(c_int) function lockstep_reduce(group, data, count, dtype, op, root, work) bind(c)
      import :: c_int, c_int64_t, c_size_t
      integer(c_int64_t), value :: group
      type(*), intent(inout), asynchronous :: data(*)
      integer(c_size_t), value :: count
      integer(c_int), value :: dtype, op, root
      integer(c_int64_t), intent(out), optional :: work
    end function
    integer(c_int) function lockstep_broadcast(group, data, count, dtype, root, work) bind(c)
      import :: c_int, c_int64_t, c_size_t
      integer(c_int64_t), value :: group
      type(*), intent(inout), asynchronous :: data(*)
      integer(c_size_t), value :: count
      integer(c_int), value :: dtype, root
      integer(c_int64_t), intent(out), optional :: work
    end function
    integer(c_int) function lockstep_all_gather(group, input, output, count, dtype, work) bind(c)
      import :: c_int, c_int64_t, c_size_t
      integer(c_int64_t), value :: group
      type(*), intent(in), asynchronous :: input(*)
      type(*), intent(inout), asynchronous :: output(*)
      integer(c_size_t), value :: count
      integer(c_int), value :: dtype
      integer(c_int64_t), intent(out), optional :: work
    end function
    integer(c_int) function lockstep_all_gatherv(group, input, output, counts, dtype, work) bind(c)
      import :: c_int, c_int64_t, c_size_t
      integer(c_int64_t), value :: group
      type(*), intent(in), asynchronous :: input(*)
      type(*), intent(inout), asynchronous :: output(*)
      integer(c_size_t), intent(in) :: counts(*)
      integer(c_int), value :: dtype
      integer(c_int64_t), intent(out), optional :: work
    end function
    integer(c_int) function lockstep_reduce_scatter(group, input, output, count, dtype, op, work) bind(c)
      import :: c_int, c_int64_t, c_size_t
      integer(c_int64_t), value :: group
      type(*), intent(in), asynchronous :: input(*)
      type(*), intent(inout), asynchronous :: output(*)
      integer(c_size_t), value :: count
      integer(c_int), value :: dtype, op
      integer(c_int64_t), intent(out), optional :: work
    end function
    integer(c_int) function lockstep_reduce_scatterv(group, input, output, counts, dtype, op, work) bind(c)
      import :: c_int, c_int64_t, c_size_t
      integer(c_int64_t), value :: group
      type(*), intent(in), asynchronous :: input(*)
      type(*), intent(inout), asynchronous :: output(*)
      integer(c_size_t), intent(in) :: counts(*)
      integer(c_int), value :: dtype, op
      integer(c_int64_t), intent(out), optional :: work
    end function
    integer(c_int) function lockstep_all_to_all(group, input, output, count, dtype, work) bind(c)
      import :: c_int, c_int64_t, c_size_t
      integer(c_int64_t), value :: group
      type(*), intent(in), asynchronous :: input(*)
      type(*), intent(inout), asynchronous :: output(*)
      integer(c_size_t), value :: count
      integer(c_int), value :: dtype
      integer(c_int64_t), intent(out), optional :: work
    end function
    integer(c_int) function lockstep_all_to_allv(group, input, input_counts, output, output_counts, dtype, &
      work) bind(c)
      import :: c_int, c_int64_t, c_size_t
      integer(c_int64_t), value :: group
      type(*), intent(in), asynchronous :: input(*)
      integer(c_size_t), intent(in) :: input_counts(*)
      type(*), intent(inout), asynchronous :: output(*)
      integer(c_size_t), intent(in) :: output_counts(*)
      integer(c_int), value :: dtype
      integer(c_int64_t), intent(out), optional :: work
    end function
    integer(c_int) function lockstep_gather(group, input, output, count, dtype, root, work) bind(c)
      import :: c_int, c_int64_t, c_size_t
      integer(c_int64_t), value :: group
      type(*), intent(in), asynchronous :: input(*)
      type(*), intent(inout), asynchronous :: output(*)
      integer(c_size_t), value :: count
      integer(c_int), value :: dtype, root
      integer(c_int64_t), intent(out), optional :: work
    end function
    integer(c_int) function lockstep_gatherv(group, input, count, output, counts, dtype, root, work) bind(c)
      import :: c_int, c_int64_t, c_size_t
      integer(c_int64_t), value :: group
      type(*), intent(in), asynchronous :: input(*)
      integer(c_size_t), value :: count
      type(*), intent(inout), asynchronous :: output(*)
      integer(c_size_t), intent(in) :: counts(*)
      integer(c_int), value :: dtype, root
      integer(c_int64_t), intent(out), optional :: work
    end function
    integer(c_int) function lockstep_scatter(group, input, output, count, dtype, root, work) bind(c)
      import :: c_int, c_int64_t, c_size_t
      integer(c_int64_t), value :: group
      type(*), intent(in), asynchronous :: input(*)
      type(*), intent(inout), asynchronous :: output(*)
      integer(c_size_t), value :: count
      integer(c_int), value :: dtype, root
      integer(c_int64_t), intent(out), optional :: work
    end function
    integer(c_int) function lockstep_scatterv(group, input, counts, output, count, dtype, root, work) bind(c)
      import :: c_int, c_int64_t, c_size_t
      integer(c_int64_t), value :: group
      type(*), intent(in), asynchronous :: input(*)
      integer(c_size_t), intent(in) :: counts(*)
      type(*), intent(inout), asynchronous :: output(*)
      integer(c_size_t), value :: count
      integer(c_int), value :: dtype, root
      integer(c_int64_t), intent(out), optional :: work
    end function
    integer(c_int) function lockstep_send(group, data, count, dtype, destination, tag, work) bind(c)
      import :: c_int, c_int64_t, c_size_t
      integer(c_int64_t), value :: group
      type(*), intent(in), asynchronous :: data(*)
      integer(c_size_t), value :: count
      integer(c_int), value :: dtype, destination, tag
      integer(c_int64_t), intent(out), optional :: work
    end function
    integer(c_int) function lockstep_recv(group, data, count, dtype, source, tag, from, work) bind(c)
      import :: c_int, c_int64_t, c_size_t
      integer(c_int64_t), value :: group
      type(*), intent(inout), asynchronous :: data(*)
      integer(c_size_t), value :: count
      integer(c_int), value :: dtype, source, tag
      integer(c_int), intent(out), optional :: from
      integer(c_int64_t), intent(out), optional :: work
    end function
    ! memory.h
    integer(c_int) function lockstep_allocate_shared(group, bytes, memory) bind(c)
      import :: c_int, c_int64_t, c_ptr, c_size_t
      integer(c_int64_t), value :: group
      integer(c_size_t), value :: bytes
      type(c_ptr), intent(out) :: memory
    end function
    integer(c_int) function lockstep_allocate_common(group, bytes, memory) bind(c)
      import :: c_int, c_int64_t, c_ptr, c_size_t
      integer(c_int64_t), value :: group
      integer(c_size_t), value :: bytes
      type(c_ptr), intent(out) :: memory
    end function
    integer(c_int) function lockstep_free_shared(memory) bind(c)
      import :: c_int, c_ptr
      type(c_ptr), value :: memory
    end function
    ! objects.h
    integer(c_int) function lockstep_all_gather_object(group, bytes, size, objects) bind(c)
      import :: c_int, c_int64_t, c_size_t
      integer(c_int64_t), value :: group
      type(*), intent(in), asynchronous :: bytes(*)
      integer(c_size_t), value :: size
      integer(c_int64_t), intent(out) :: objects
    end function
    integer(c_int) function lockstep_gather_object(group, bytes, size, root, objects) bind(c)
      import :: c_int, c_int64_t, c_size_t
      integer(c_int64_t), value :: group
      type(*), intent(in), asynchronous :: bytes(*)
      integer(c_size_t), value :: size
      integer(c_int), value :: root
      integer(c_int64_t), intent(out) :: objects
    end function
    integer(c_int) function lockstep_broadcast_object(group, bytes, size, root, objects) bind(c)
      import :: c_int, c_int64_t, c_size_t
      integer(c_int64_t), value :: group
      type(*), intent(in), asynchronous :: bytes(*)
      integer(c_size_t), value :: size
      integer(c_int), value :: root
      integer(c_int64_t), intent(out) :: objects
    end function
    integer(c_int) function lockstep_scatter_object(group, bytes, sizes, root, objects) bind(c)
      import :: c_int, c_int64_t, c_ptr, c_size_t
      integer(c_int64_t), value :: group
      type(c_ptr), intent(in) :: bytes(*)
      integer(c_size_t), intent(in) :: sizes(*)
      integer(c_int), value :: root
      integer(c_int64_t), intent(out) :: objects
    end function
    integer(c_int) function lockstep_send_object(group, bytes, size, destination, tag) bind(c)
      import :: c_int, c_int64_t, c_size_t
      integer(c_int64_t), value :: group
      type(*), intent(in), asynchronous :: bytes(*)
      integer(c_size_t), value :: size
      integer(c_int), value :: destination, tag
    end function
    integer(c_int) function lockstep_recv_object(group, source, tag, from, objects) bind(c)
      import :: c_int, c_int64_t
      integer(c_int64_t), value :: group
      integer(c_int), value :: source, tag
      integer(c_int), intent(out), optional :: from
      integer(c_int64_t), intent(out) :: objects
    end function
    integer(c_int) function lockstep_objects_count(objects, count) bind(c)
      import :: c_int, c_int64_t, c_size_t
      integer(c_int64_t), value :: objects
      integer(c_size_t), intent(out) :: count
    end function
    integer(c_int) function lockstep_objects_get(objects, index, bytes, size) bind(c)
      import :: c_int, c_int64_t, c_ptr, c_size_t
      integer(c_int64_t), value :: objects
      integer(c_size_t), value :: index
      type(c_ptr), intent(out) :: bytes
      integer(c_size_t), intent(out) :: size
    end function
    integer(c_int) function lockstep_objects_free(objects) bind(c)
      import :: c_int, c_int64_t
      integer(c_int64_t), value :: objects
    end function
    ! store.h
    integer(c_int) function lockstep_store_open_file(path, store) bind(c)
      import :: c_char, c_int, c_int64_t
      character(kind=c_char), intent(in) :: path(*)
      integer(c_int64_t), intent(out) :: store
    end function
    integer(c_int) function lockstep_store_serve(address, port, secret_file, chosen_port, store) bind(c)
      import :: c_char, c_int, c_int64_t
      character(kind=c_char), intent(in), optional :: address(*)
      integer(c_int), value :: port
      character(kind=c_char), intent(in) :: secret_file(*)
      integer(c_int), intent(out), optional :: chosen_port
      integer(c_int64_t), intent(out) :: store
    end function
    integer(c_int) function lockstep_store_connect(host, port, secret_file, timeout_ms, store) bind(c)
      import :: c_char, c_int, c_int64_t
      character(kind=c_char), intent(in) :: host(*)
      integer(c_int), value :: port
      character(kind=c_char), intent(in) :: secret_file(*)
      integer(c_int64_t), value :: timeout_ms
      integer(c_int64_t), intent(out) :: store
    end function
    integer(c_int) function lockstep_store_free(store) bind(c)
      import :: c_int, c_int64_t
      integer(c_int64_t), value :: store
    end function
    integer(c_int) function lockstep_store_set(store, key, bytes, size) bind(c)
      import :: c_char, c_int, c_int64_t, c_size_t
      integer(c_int64_t), value :: store
      character(kind=c_char), intent(in) :: key(*)
      type(*), intent(in), asynchronous :: bytes(*)
      integer(c_size_t), value :: size
    end function
    integer(c_int) function lockstep_store_get(store, key, timeout_ms, value) bind(c)
      import :: c_char, c_int, c_int64_t
      integer(c_int64_t), value :: store
      character(kind=c_char), intent(in) :: key(*)
      integer(c_int64_t), value :: timeout_ms
      integer(c_int64_t), intent(out) :: value
    end function
    integer(c_int) function lockstep_store_add(store, key, amount, sum) bind(c)
      import :: c_char, c_int, c_int64_t
      integer(c_int64_t), value :: store
      character(kind=c_char), intent(in) :: key(*)
      integer(c_int64_t), value :: amount
      integer(c_int64_t), intent(out), optional :: sum
    end function
    ! named.h
    integer(c_int) function lockstep_named_init(ranks, counts, sets) bind(c)
      import :: c_int, c_size_t
      integer(c_int), intent(in), optional :: ranks(*)
      integer(c_size_t), intent(in), optional :: counts(*)
      integer(c_size_t), value :: sets
    end function
    integer(c_int) function lockstep_named_shutdown() bind(c)
      import :: c_int
    end function
    integer(c_int) function lockstep_named_is_initialized() bind(c)
      import :: c_int
    end function
    integer(c_int) function lockstep_named_submit(requests, count, operations) bind(c)
      import :: c_int, c_int64_t, c_size_t, lockstep_named_request
      type(lockstep_named_request), intent(in) :: requests(*)
      integer(c_size_t), value :: count
      integer(c_int64_t), intent(out) :: operations(*)
    end function
    integer(c_int) function lockstep_named_prepare(request, operation) bind(c)
      import :: c_int, c_int64_t, lockstep_named_request
      type(lockstep_named_request), intent(in) :: request
      integer(c_int64_t), intent(out) :: operation
    end function
    integer(c_int) function lockstep_named_start(operation, input, output) bind(c)
      import :: c_int, c_int64_t, c_ptr
      integer(c_int64_t), value :: operation
      type(c_ptr), value :: input, output
    end function
    integer(c_int) function lockstep_named_poll(operation, done) bind(c)
      import :: c_int, c_int64_t
      integer(c_int64_t), value :: operation
      integer(c_int), intent(out) :: done
    end function
    integer(c_int) function lockstep_named_wait(operation) bind(c)
      import :: c_int, c_int64_t
      integer(c_int64_t), value :: operation
    end function
    integer(c_int) function lockstep_named_finish(operation) bind(c)
      import :: c_int, c_int64_t
      integer(c_int64_t), value :: operation
    end function
    integer(c_int) function lockstep_named_notify(operation, ended, context, is_awaited) bind(c)
      import :: c_int, c_int64_t, c_funptr, c_ptr
      integer(c_int64_t), value :: operation
      type(c_funptr), value :: ended
      type(c_ptr), value :: context
      integer(c_int), value :: is_awaited
    end function
    integer(c_int) function lockstep_named_result(operation, data, rows) bind(c)
      import :: c_int, c_int64_t, c_ptr
      integer(c_int64_t), value :: operation
      type(c_ptr), intent(out) :: data
      integer(c_int64_t), intent(out) :: rows
    end function
    integer(c_int) function lockstep_named_received(operation, splits) bind(c)
      import :: c_int, c_int64_t
      integer(c_int64_t), value :: operation
      integer(c_int64_t), intent(out) :: splits(*)
    end function
    integer(c_int) function lockstep_named_last_joined(operation, rank) bind(c)
      import :: c_int, c_int64_t
      integer(c_int64_t), value :: operation
      integer(c_int), intent(out) :: rank
    end function
    integer(c_int) function lockstep_named_free(operation) bind(c)
      import :: c_int, c_int64_t
      integer(c_int64_t), value :: operation
    end function
    integer(c_int) function lockstep_named_add_process_set(ranks, count, process_set) bind(c)
      import :: c_int, c_size_t
      integer(c_int), intent(in) :: ranks(*)
      integer(c_size_t), value :: count
      integer(c_int), intent(out) :: process_set
    end function
    integer(c_int) function lockstep_named_remove_process_set(process_set) bind(c)
      import :: c_int
      integer(c_int), value :: process_set
    end function
    integer(c_int) function lockstep_named_process_set(process_set, rank, size) bind(c)
      import :: c_int
      integer(c_int), value :: process_set
      integer(c_int), intent(out) :: rank, size
    end function
    integer(c_int) function lockstep_named_places(cross_rank, cross_size, is_homogeneous) bind(c)
      import :: c_int
      integer(c_int), intent(out) :: cross_rank, cross_size, is_homogeneous
    end function
    integer(c_int) function lockstep_named_start_timeline(path, mark_cycles) bind(c)
      import :: c_char, c_int
      character(kind=c_char), intent(in) :: path(*)
      integer(c_int), value :: mark_cycles
    end function
    integer(c_int) function lockstep_named_stop_timeline() bind(c)
      import :: c_int
    end function
  end interface

contains

  ! A text of C as one of Fortran.
  function lockstep_text(text) result(made)
    type(c_ptr), intent(in) :: text
    character(len=:), allocatable :: made
    character(kind=c_char), pointer :: letters(:)
    integer :: i, length
    call c_f_pointer(text, letters, [huge(length)])  ! the end is found below
    length = 0
    do while (letters(length + 1) /= c_null_char)
      length = length + 1
    end do
    allocate (character(len=length) :: made)
    do i = 1, length
      made(i:i) = letters(i)
    end do
  end function

  ! The text of the last error of this thread.
  function lockstep_error_message() result(made)
    character(len=:), allocatable :: made
    made = lockstep_text(lockstep_error_text())
  end function
end module

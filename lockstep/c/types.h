// Handles, element types and operators of the C interface.
//
//   lockstep_group pair = 0;                                        // null: names nothing
//   int dtype = LOCKSTEP_BFLOAT16, op = LOCKSTEP_MAX;
//
// Handles     are numbers, because every language has numbers. A number is never used again, so a freed
//             handle is known. 0 is null. Each handle that a program gets is its own to free.
// Values      of all enumerations are part of the ABI. New ones are added behind the last.
#pragma once

#include <stddef.h>  // NOLINT(modernize-deprecated-headers): C
#include <stdint.h>  // NOLINT(modernize-deprecated-headers)

#ifdef __cplusplus
#define LOCKSTEP_C_API extern "C" __attribute__((visibility("default")))
#else
#define LOCKSTEP_C_API __attribute__((visibility("default")))
#endif

// NOLINTBEGIN(modernize-use-using,readability-identifier-naming): C
typedef int64_t lockstep_group;    // ranks that communicate; group.h
typedef int64_t lockstep_work;     // an operation that was started; work.h
typedef int64_t lockstep_objects;  // a list of byte strings; objects.h
typedef int64_t lockstep_store;    // where processes find each other; store.h

// All ranks of the job. It is never freed.
#define LOCKSTEP_WORLD ((lockstep_group)1)

// The source of a receive from the rank that sends first.
#define LOCKSTEP_ANY_SOURCE (-1)

// Half precision is passed as its 16 bits, bool as one byte that is 0 or 1, a complex number as two reals.
enum lockstep_dtype {
  LOCKSTEP_FLOAT64 = 0,
  LOCKSTEP_FLOAT32 = 1,
  LOCKSTEP_FLOAT16 = 2,
  LOCKSTEP_BFLOAT16 = 3,
  LOCKSTEP_INT8 = 4,
  LOCKSTEP_UINT8 = 5,
  LOCKSTEP_INT16 = 6,
  LOCKSTEP_UINT16 = 7,
  LOCKSTEP_INT32 = 8,
  LOCKSTEP_UINT32 = 9,
  LOCKSTEP_INT64 = 10,
  LOCKSTEP_UINT64 = 11,
  LOCKSTEP_BOOL = 12,
  LOCKSTEP_COMPLEX64 = 13,
  LOCKSTEP_COMPLEX128 = 14
};

// AVG is for floating point and complex numbers; BAND, BOR and BXOR are for integers and bool. Complex
// numbers have SUM and AVG alone.
enum lockstep_op {
  LOCKSTEP_SUM = 0,
  LOCKSTEP_AVG = 1,
  LOCKSTEP_PRODUCT = 2,
  LOCKSTEP_MIN = 3,
  LOCKSTEP_MAX = 4,
  LOCKSTEP_BAND = 5,
  LOCKSTEP_BOR = 6,
  LOCKSTEP_BXOR = 7
};
// NOLINTEND(modernize-use-using,readability-identifier-naming)

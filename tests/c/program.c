/* One rank of a job in C, which calls each function of the C interface and compares with formulas.
 *
 *   lockstep run -n 3 build/tests/c/c_program
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lockstep/c/lockstep.h"

#define OK(call) ok(call, #call, __LINE__)
#define EXPECT(condition) expect(condition, #condition, __LINE__)

static int rank = -1, size = -1;

static void expect(int holds, const char* what, int line) {
  if (holds) return;
  fprintf(stderr, "rank %d, line %d: not so: %s\n", rank, line, what);
  exit(1);
}

static void ok(int code, const char* what, int line) {
  if (code == LOCKSTEP_OK) return;
  fprintf(stderr, "rank %d, line %d: %s: %s: %s\n", rank, line, what, lockstep_code_name(code),
          lockstep_error_text());
  exit(1);
}

static void join(void) {
  int local = -1, local_size = -1, node = -1, nodes = -1;
  lockstep_init_options options = LOCKSTEP_INIT_OPTIONS;
  EXPECT(lockstep_is_initialized() == 0);
  EXPECT(lockstep_barrier(LOCKSTEP_WORLD, NULL) == LOCKSTEP_ERROR_NOT_INITIALIZED);
  options.timeout_ms = 60000;
  OK(lockstep_init(&options));
  EXPECT(lockstep_is_initialized() == 1);
  OK(lockstep_rank(LOCKSTEP_WORLD, &rank));
  OK(lockstep_size(LOCKSTEP_WORLD, &size));
  OK(lockstep_local_rank(&local));
  OK(lockstep_local_size(&local_size));
  OK(lockstep_node_rank(&node));
  OK(lockstep_node_count(&nodes));
  EXPECT(local == rank && local_size == size && node == 0 && nodes == 1);
}

static void collectives(void) {
  const int root = size - 1;
  const lockstep_group all = LOCKSTEP_WORLD;
  size_t n = 0, part = (size_t)rank + 1, total = 0;
  size_t counts[16];
  int32_t mine[16], many[256], few[16];
  void* buffers[2];
  int r;
  for (r = 0; r < size; ++r) total += counts[r] = (size_t)r + 1; /* rank r has r + 1 numbers, all r */
  buffers[0] = few;
  buffers[1] = many;
  for (n = 0; n < 16; ++n) mine[n] = rank;

  few[0] = few[1] = rank + 1;
  OK(lockstep_all_reduce(all, few, 2, LOCKSTEP_INT32, LOCKSTEP_SUM, NULL));
  EXPECT(few[0] == size * (size + 1) / 2 && few[1] == few[0]);
  few[0] = many[0] = rank + 1;
  counts[14] = counts[15] = 1;
  OK(lockstep_all_reduce_coalesced(all, buffers, &counts[14], 2, LOCKSTEP_INT32, LOCKSTEP_MAX, NULL));
  EXPECT(few[0] == size && many[0] == size);
  few[0] = rank + 1;
  OK(lockstep_reduce(all, few, 1, LOCKSTEP_INT32, LOCKSTEP_MAX, root, NULL));
  EXPECT(few[0] == (rank == root ? size : rank + 1));
  few[0] = rank;
  OK(lockstep_broadcast(all, few, 1, LOCKSTEP_INT32, root, NULL));
  EXPECT(few[0] == root);

  OK(lockstep_all_gather(all, mine, many, 3, LOCKSTEP_INT32, NULL));
  for (n = 0; n < 3 * (size_t)size; ++n) EXPECT(many[n] == (int32_t)(n / 3));
  OK(lockstep_all_gatherv(all, mine, many, counts, LOCKSTEP_INT32, NULL));
  EXPECT(many[0] == 0 && many[total - 1] == root);
  OK(lockstep_gather(all, mine, many, 3, LOCKSTEP_INT32, root, NULL));
  OK(lockstep_gatherv(all, mine, part, many, counts, LOCKSTEP_INT32, root, NULL));
  EXPECT(many[0] == 0 && many[total - 1] == root);
  OK(lockstep_scatterv(all, many, counts, few, part, LOCKSTEP_INT32, root, NULL));
  for (n = 0; n < part; ++n) EXPECT(few[n] == rank);

  for (n = 0; n < 3 * (size_t)size; ++n) many[n] = (int32_t)(n / 3);
  OK(lockstep_scatter(all, many, few, 3, LOCKSTEP_INT32, root, NULL));
  EXPECT(few[0] == rank && few[2] == rank);
  OK(lockstep_reduce_scatter(all, many, few, 3, LOCKSTEP_INT32, LOCKSTEP_SUM, NULL));
  EXPECT(few[0] == size * rank && few[2] == size * rank);
  OK(lockstep_all_to_all(all, many, &many[128], 3, LOCKSTEP_INT32, NULL));
  for (n = 0; n < 3 * (size_t)size; ++n) EXPECT(many[128 + n] == rank);
  OK(lockstep_all_gatherv(all, mine, many, counts, LOCKSTEP_INT32, NULL));
  OK(lockstep_reduce_scatterv(all, many, few, counts, LOCKSTEP_INT32, LOCKSTEP_SUM, NULL));
  EXPECT(few[0] == size * rank && few[part - 1] == size * rank);
  for (r = 0; r < size; ++r) counts[8 + r] = part; /* rank r gets r + 1 numbers from every rank */
  OK(lockstep_all_to_allv(all, many, counts, &many[128], &counts[8], LOCKSTEP_INT32, NULL));
  for (n = 0; n < part * (size_t)size; ++n) EXPECT(many[128 + n] == rank);
  OK(lockstep_monitored_barrier(all, 0, 1));
}

static void messages_and_works(void) {
  double sent = rank + 0.5, received = -1, sum = 1;
  lockstep_work works[3] = {0, 0, 0};
  int from = -1, done = 0, other = -1;
  if (size > 1) {
    OK(lockstep_send(LOCKSTEP_WORLD, &sent, 1, LOCKSTEP_FLOAT64, (rank + 1) % size, 1, &works[0]));
    OK(lockstep_recv(LOCKSTEP_WORLD, &received, 1, LOCKSTEP_FLOAT64, LOCKSTEP_ANY_SOURCE, 1, &from, NULL));
    EXPECT(from == (rank + size - 1) % size && received == from + 0.5);
    OK(lockstep_work_wait(works[0], 0));
    OK(lockstep_work_source(works[0], &other));
    EXPECT(other == -1);
    OK(lockstep_work_free(works[0]));
  }
  OK(lockstep_barrier(LOCKSTEP_WORLD, &works[1]));
  OK(lockstep_all_reduce(LOCKSTEP_WORLD, &sum, 1, LOCKSTEP_FLOAT64, LOCKSTEP_SUM, &works[2]));
  while (!done) OK(lockstep_work_test(works[2], &done));
  EXPECT(sum == size);
  OK(lockstep_work_wait(works[1], 1000));
  OK(lockstep_work_free(works[1]));
  OK(lockstep_work_free(works[2]));
  EXPECT(lockstep_work_free(works[2]) == LOCKSTEP_ERROR_INVALID_HANDLE);
}

static void groups(void) {
  const int first[] = {0};
  int mine = -1, other = -1, number = 1, list[16];
  const char* text = NULL;
  lockstep_group group = 0, half = 0;
  OK(lockstep_new_group(first, 1, NULL, &group));
  OK(lockstep_rank(group, &mine));
  EXPECT(mine == (rank == 0 ? 0 : -1));
  OK(lockstep_global_rank(group, 0, &other));
  EXPECT(other == 0);
  OK(lockstep_group_free(group));
  OK(lockstep_split_group(LOCKSTEP_WORLD, rank % 2, -rank, NULL, &half)); /* the highest rank first */
  OK(lockstep_group_ranks(half, list));
  OK(lockstep_group_rank(half, list[0], &mine));
  EXPECT(mine == 0 && list[0] % 2 == rank % 2);
  OK(lockstep_all_reduce(half, &number, 1, LOCKSTEP_INT32, LOCKSTEP_SUM, NULL));
  EXPECT(number == (size + 1 - rank % 2) / 2);
  OK(lockstep_group_name(half, &text));
  EXPECT(strcmp(text, "world/split") == 0);
  OK(lockstep_group_backend(half, &text));
  EXPECT(strlen(text) > 0);
  OK(lockstep_group_free(half));
}

static void memory_and_objects(void) {
  void *shared = NULL, *common = NULL;
  const void* bytes = NULL;
  const void* pointers[16];
  size_t count = 0, length = 0, sizes[16];
  lockstep_objects objects = 0;
  int r, from = -1;
  OK(lockstep_allocate_shared(LOCKSTEP_WORLD, 64, &shared));
  *(double*)shared = 1;
  OK(lockstep_all_reduce(LOCKSTEP_WORLD, shared, 1, LOCKSTEP_FLOAT64, LOCKSTEP_SUM, NULL));
  EXPECT(*(double*)shared == size);
  OK(lockstep_free_shared(shared));
  OK(lockstep_allocate_common(LOCKSTEP_WORLD, 64, &common));
  if (common != NULL) OK(lockstep_free_shared(common));
  EXPECT(lockstep_free_shared(shared) == LOCKSTEP_ERROR_INVALID_HANDLE);

  for (r = 0; r < size; ++r) {
    pointers[r] = "objects of any length";
    sizes[r] = (size_t)r;
  }
  OK(lockstep_all_gather_object(LOCKSTEP_WORLD, "objects", (size_t)rank, &objects));
  OK(lockstep_objects_count(objects, &count));
  OK(lockstep_objects_get(objects, (size_t)size - 1, &bytes, &length));
  EXPECT(count == (size_t)size && length == (size_t)size - 1 && memcmp(bytes, "objects", length) == 0);
  OK(lockstep_objects_free(objects));
  OK(lockstep_gather_object(LOCKSTEP_WORLD, "x", 1, 0, &objects));
  OK(lockstep_objects_count(objects, &count));
  EXPECT(count == (rank == 0 ? (size_t)size : 0));
  OK(lockstep_objects_free(objects));
  OK(lockstep_broadcast_object(LOCKSTEP_WORLD, "abc", rank == 0 ? 3 : 0, 0, &objects));
  OK(lockstep_objects_get(objects, 0, &bytes, &length));
  EXPECT(length == 3 && memcmp(bytes, "abc", 3) == 0);
  OK(lockstep_objects_free(objects));
  OK(lockstep_scatter_object(LOCKSTEP_WORLD, pointers, sizes, 0, &objects));
  OK(lockstep_objects_get(objects, 0, &bytes, &length));
  EXPECT(length == (size_t)rank);
  OK(lockstep_objects_free(objects));
  if (rank == 1) OK(lockstep_send_object(LOCKSTEP_WORLD, "to rank 0", 9, 0, 7));
  if (rank == 0 && size > 1) {
    OK(lockstep_recv_object(LOCKSTEP_WORLD, 1, 7, &from, &objects));
    EXPECT(from == 1);
    OK(lockstep_objects_free(objects));
  }
}

int main(void) {
  EXPECT(strlen(lockstep_version()) > 0 && lockstep_c_version() >= 1);
  join();
  collectives();
  messages_and_works();
  groups();
  memory_and_objects();
  OK(lockstep_shutdown());
  EXPECT(lockstep_shutdown() == LOCKSTEP_ERROR_NOT_INITIALIZED);
  return 0;
}

// Fits a line to points that the ranks share out, by gradient descent: a program in C.
//
//   build/lockstep run -n 2 build/examples/line_fit
//   [0] 2 ranks fitted y = 2.00 x + 1.00 to 200 points
//
//   build/examples/line_fit                                 # alone, with its own 100 points
#include <stdio.h>
#include <stdlib.h>

#include "lockstep/c/lockstep.h"

enum { POINTS = 100, STEPS = 400 };

// The text names rank, group, operation and remedy.
static void check(int code) {
  if (code == LOCKSTEP_OK) return;
  fprintf(stderr, "%s: %s\n", lockstep_code_name(code), lockstep_error_text());
  exit(1);
}

// Half the mean square error's gradient by slope and offset, over this rank's points.
static void gradient(const double* line, const double* x, const double* y, double* result) {
  int i;
  result[0] = result[1] = 0;
  for (i = 0; i < POINTS; ++i) {
    const double error = line[0] * x[i] + line[1] - y[i];
    result[0] += error * x[i] / POINTS;
    result[1] += error / POINTS;
  }
}

int main(void) {
  double x[POINTS], y[POINTS], mean[2], line[2] = {0, 0};
  long points = POINTS;
  lockstep_work counting = 0;
  int rank = 0, size = 0, i, step;

  check(lockstep_init(NULL));  // the environment decides; without a launcher this is a job of one
  check(lockstep_rank(LOCKSTEP_WORLD, &rank));
  check(lockstep_size(LOCKSTEP_WORLD, &size));
  for (i = 0; i < POINTS; ++i) {  // rank r has every size-th point from r on
    x[i] = (double)(i * size + rank) / (POINTS * size);
    y[i] = 2 * x[i] + 1;
  }

  // With a work at the end a call does not block: the points are counted while the line is fitted.
  check(lockstep_all_reduce(LOCKSTEP_WORLD, &points, 1, LOCKSTEP_INT64, LOCKSTEP_SUM, &counting));
  for (step = 0; step < STEPS; ++step) {
    gradient(line, x, y, mean);
    check(lockstep_all_reduce(LOCKSTEP_WORLD, mean, 2, LOCKSTEP_FLOAT64, LOCKSTEP_AVG, NULL));
    line[0] -= mean[0];
    line[1] -= mean[1];
  }
  check(lockstep_work_wait(counting, 0));
  check(lockstep_work_free(counting));
  if (rank == 0) printf("%d ranks fitted y = %.2f x + %.2f to %ld points\n", size, line[0], line[1], points);
  check(lockstep_shutdown());
  return 0;
}

/* A program in C that knows the installed package alone. */
#include <lockstep/c/lockstep.h>
#include <stdio.h>

int main(void) {
  double sum = 1;
  int size = 0;
  if (lockstep_init(NULL) != LOCKSTEP_OK ||
      lockstep_all_reduce(LOCKSTEP_WORLD, &sum, 1, LOCKSTEP_FLOAT64, LOCKSTEP_SUM, NULL) != LOCKSTEP_OK ||
      lockstep_size(LOCKSTEP_WORLD, &size) != LOCKSTEP_OK || lockstep_shutdown() != LOCKSTEP_OK) {
    fprintf(stderr, "%s\n", lockstep_error_text());
    return 1;
  }
  return sum == size ? 0 : 1;
}

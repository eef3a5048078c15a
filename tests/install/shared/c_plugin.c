// A plug-in in C that knows nothing of the program: it adds up a number over the job it finds, and asks for
// what cannot be.
#include <lockstep/c/lockstep.h>

int c_plugin_sum(int mine);
const char* c_plugin_fails(void);

int c_plugin_sum(int mine) {
  return lockstep_all_reduce(LOCKSTEP_WORLD, &mine, 1, LOCKSTEP_INT32, LOCKSTEP_SUM, NULL) == LOCKSTEP_OK
             ? mine
             : -1;
}

const char* c_plugin_fails(void) {
  int number = 1;
  const int code = lockstep_broadcast(LOCKSTEP_WORLD, &number, 1, LOCKSTEP_INT32, 99, NULL);
  return code == LOCKSTEP_ERROR_INVALID_ARGUMENT ? lockstep_error_text() : "not noticed";
}

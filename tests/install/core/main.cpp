// The part without libtorch, from an installed package: one process alone adds up its own vector.
#include <lockstep/base/environment.h>

int main() { return lockstep::job_environment().world_size == 1 ? 0 : 1; }

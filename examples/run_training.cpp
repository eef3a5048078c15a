#include "examples/checkpoints.h"
#include "examples/command_line.h"

int run_training(int argc, char** argv, void (*train)(const CheckpointOptions&)) {
  CheckpointOptions options;
  int ranks = 0;
  CLI::App app("Trains with every process of the job.");
  add_checkpoint_options(app, options);
  app.add_option("--spawn", ranks, "start so many ranks itself")->check(CLI::PositiveNumber);
  parse_options(app, argc, argv);
  return exit_code_of([&] {
    if (ranks > 0) {
      lockstep::spawn(ranks, [&](int) { train(options); });  // they run main again, up to here
    } else {
      train(options);
    }
  });
}

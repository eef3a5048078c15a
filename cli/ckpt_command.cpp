// lockstep ckpt: lists checkpoints, verifies them, and compares two of them.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/arguments.h"
#include "cli/checkpoint_texts.h"
#include "cli/commands.h"
#include "cli/parse.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/formats/checkpoint_convert.h"
#include "lockstep/formats/checkpoint_folder.h"
#include "lockstep/formats/checkpoint_reader.h"
#include "lockstep/launch/prepare.h"
#include "lockstep/os/folder.h"

namespace lockstep::cli {
namespace {

struct CkptOptions {
  std::string path;
  std::string other;   // for diff
  std::string output;  // for convert
  std::string item = "model";
  bool all = false;
  int keep_last = 0;
  std::int64_t keep_every = 0;
  bool dry_run = false;
};

void describe_convert(CLI::App& app, CkptOptions& options) {
  CLI::App* convert =
      app.add_subcommand("convert", "write an item's tensors into one file for other programs");
  convert->add_option("CHECKPOINT", options.path, "a checkpoint, or a folder: its newest")
      ->required()
      ->type_name("");
  convert
      ->add_option("OUTPUT", options.output, "FILE.safetensors, or FILE.pt for torch.load(weights_only=True)")
      ->required()
      ->type_name("");
  convert->add_option("--item", options.item, "whose tensors, without its name before theirs")
      ->type_name("NAME")
      ->capture_default_str();
  convert->add_flag("--all", options.all, "the tensors of all items, under their full names");
}

void describe_options(CLI::App& app, CkptOptions& options) {
  app.require_subcommand(1);
  CLI::App* ls = app.add_subcommand("ls", "list the checkpoints of a folder, or what is in one");
  ls->add_option("PATH", options.path, "a folder of checkpoints, or one of them")->required()->type_name("");
  CLI::App* verify = app.add_subcommand("verify", "read every byte and compare the checksums");
  verify->add_option("PATH", options.path, "a folder of checkpoints, or one of them")
      ->required()
      ->type_name("");
  CLI::App* diff = app.add_subcommand("diff", "say what differs between two checkpoints; 1 if anything does");
  diff->add_option("ONE", options.path, "a checkpoint, or a folder: its newest")->required()->type_name("");
  diff->add_option("OTHER", options.other, "another")->required()->type_name("");
  describe_convert(app, options);
  CLI::App* prune = app.add_subcommand("prune", "remove old checkpoints");
  prune->add_option("FOLDER", options.path, "a folder of checkpoints")->required()->type_name("");
  prune->add_option("--keep-last", options.keep_last, "the newest so many stay")
      ->required()
      ->type_name("K")
      ->check(CLI::PositiveNumber);
  prune->add_option("--keep-every", options.keep_every, "and those whose step is a multiple of it")
      ->type_name("STEPS")
      ->check(CLI::PositiveNumber);
  prune->add_flag("--dry-run", options.dry_run, "say which would go, and remove none");
}

bool is_checkpoint(const std::string& path) { return is_file(str(path, '/', CHECKPOINT_INDEX_NAME)); }

// The checkpoints that a path names: itself, or all in the folder.
std::vector<std::string> checkpoints_at(const std::string& path) {
  if (is_checkpoint(path)) return {path};
  std::vector<std::string> paths;
  for (const CheckpointEntry& entry : list_checkpoints(path)) paths.push_back(entry.path);
  if (paths.empty()) throw ProgramError(str("there is no checkpoint in ", in_quotes(path)), EXIT_FAILURE);
  return paths;
}

int ls(const CkptOptions& options) {
  if (is_checkpoint(options.path)) {
    std::fputs(contents_text(read_checkpoint_index(options.path)).c_str(), stdout);
    return EXIT_SUCCESS;
  }
  for (const std::string& path : checkpoints_at(options.path))
    std::printf("%s  %s\n", path.c_str(), summary_text(read_checkpoint_index(path)).c_str());
  return EXIT_SUCCESS;
}

int verify(const CkptOptions& options) {
  bool is_whole = true;
  for (const std::string& path : checkpoints_at(options.path)) {
    std::vector<CheckpointDamage> damage;
    try {
      damage = find_damage(path, read_checkpoint_index(path), [](std::size_t) { return true; });
    } catch (const FormatError& error) {
      damage.push_back({std::string(CHECKPOINT_INDEX_NAME), "", error.what()});
    }
    for (const CheckpointDamage& one : damage)
      std::printf("%s: %s%s: %s\n", path.c_str(), one.file.c_str(),
                  one.tensor.empty() ? "" : str(", tensor ", in_quotes(one.tensor)).c_str(),
                  one.text.c_str());
    if (damage.empty()) std::printf("%s: whole\n", path.c_str());
    is_whole &= damage.empty();
  }
  return is_whole ? EXIT_SUCCESS : EXIT_FAILURE;
}

int diff(const CkptOptions& options) {
  CheckpointReader one(checkpoints_at(options.path).back());
  CheckpointReader other(checkpoints_at(options.other).back());
  const std::vector<std::string> differences = differences_between(one, other);
  for (const std::string& difference : differences) std::printf("%s\n", difference.c_str());
  return differences.empty() ? EXIT_SUCCESS : EXIT_FAILURE;
}

int convert(const CkptOptions& options) {
  CheckpointReader reader(checkpoints_at(options.path).back());
  const std::size_t tensors = convert_checkpoint(reader, options.all ? "" : options.item, options.output);
  std::printf("%s: %zu tensors\n", options.output.c_str(), tensors);
  return EXIT_SUCCESS;
}

int prune(const CkptOptions& options) {
  const std::vector<CheckpointEntry> entries = list_checkpoints(options.path);
  std::vector<std::int64_t> steps;
  for (const CheckpointEntry& entry : entries) steps.push_back(entry.step);
  Retention retention{.keep_last = options.keep_last};
  if (options.keep_every > 0) retention.keep_every = options.keep_every;
  for (const std::int64_t step : steps_to_remove(steps, retention))
    for (const CheckpointEntry& entry : entries)
      if (entry.step == step) {
        std::printf("%s %s\n", options.dry_run ? "would remove" : "removes", entry.path.c_str());
        if (!options.dry_run) remove_checkpoint(entry);
      }
  return EXIT_SUCCESS;
}

}  // namespace

int ckpt_command(const std::vector<std::string>& arguments) {
  CkptOptions options;
  CLI::App app("Checkpoints: list, verify, compare, convert, remove.", "lockstep ckpt");
  describe_options(app, options);
  if (const auto done = parse(app, arguments)) return *done;
  const std::string command = app.get_subcommands().front()->get_name();
  if (command == "ls") return ls(options);
  if (command == "verify") return verify(options);
  if (command == "diff") return diff(options);
  if (command == "convert") return convert(options);
  return prune(options);
}

}  // namespace lockstep::cli

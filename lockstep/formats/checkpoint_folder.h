// The folder in which a run keeps its checkpoints: lists them, finds the newest, and decides which may be
// removed.
//
//   for (const CheckpointEntry& entry : list_checkpoints("/runs/7")) std::cout << entry.path << '\n';
//   if (const auto newest = latest_checkpoint("/runs/7")) std::cout << newest->step << '\n';
//
//   /runs/7/step-000000001200/              a checkpoint; it is complete, because it got this name last
//          /step-000000001200/checkpoint.json, shard-00000-of-00002.safetensors, …
//          /.step-000000001400.unfinished/  one that is being written, or whose writer died
//          /.step-000000001200.replaced/    an old one that a new one of the same name replaces. It is valid
//                                           until the new one is there
//          /.lock                           held by the writer
//
// Fails       SystemError: a folder that cannot be read. A missing folder holds no checkpoint.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/visibility.h"
#include "lockstep/formats/checkpoint_index.h"

namespace LOCKSTEP_PUBLIC lockstep {

struct CheckpointEntry {
  std::int64_t step = 0;
  std::string path;

  bool operator==(const CheckpointEntry&) const = default;
};

// By rising step.
std::vector<CheckpointEntry> list_checkpoints(const std::string& folder);
std::optional<CheckpointEntry> latest_checkpoint(const std::string& folder);

// Name within the folder. Twelve digits, so that the order of names is that of steps.
std::string checkpoint_name(std::int64_t step);
std::string unfinished_name(std::int64_t step);
std::string replaced_name(std::int64_t step);
// Paths of folders that dead writers left, or that were replaced. Call it with the folder's lock.
std::vector<std::string> abandoned_in(const std::string& folder);

// Says which checkpoints stay. Each that any of the rules names stays.
struct Retention {
  std::optional<int> keep_last = {};            // so many newest ones; nullopt: all
  std::optional<std::int64_t> keep_every = {};  // and each whose step is a multiple of it
  std::vector<std::int64_t> keep_steps = {};    // and these, such as the best
};
// Returns those of `steps` that must go, oldest first. Pure. The newest never goes. Throws InvalidArgument
// for numbers below 1.
std::vector<std::int64_t> steps_to_remove(std::vector<std::int64_t> steps, const Retention& retention);

// The index of a checkpoint's folder. Throws FormatError and SystemError that name the file.
CheckpointIndex read_checkpoint_index(const std::string& checkpoint);

// Damage that was found: the file or tensor, and how it shows.
struct CheckpointDamage {
  std::string file;
  std::string tensor;  // "" if it concerns the whole file
  std::string text;
};
// Compares the files' sizes and the checksums of pieces with the index. `selects` chooses pieces by their
// number, in the order of the index's tensors. If it selects the first piece, the files' headers are
// compared, too. Reads all these bytes.
std::vector<CheckpointDamage> find_damage(const std::string& checkpoint, const CheckpointIndex& index,
                                          const std::function<bool(std::size_t piece)>& selects);

// Removes a checkpoint. Its name goes first, so that no half of it is ever found.
void remove_checkpoint(const CheckpointEntry& entry);

}  // namespace lockstep

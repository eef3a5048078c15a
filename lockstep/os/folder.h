// Folders: making, listing, renaming and removing them, and when their entries are on the disk.
//
//   make_folder("/runs/7/.step-1200.unfinished");
//   ... files ...
//   sync_folder("/runs/7/.step-1200.unfinished");                     // its entries are on the disk
//   rename_path("/runs/7/.step-1200.unfinished", "/runs/7/step-1200");
//   sync_folder("/runs/7");                                           // and so is the new name
//
// Fails       SystemError that names the path.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

bool is_folder(const std::string& path);
bool is_file(const std::string& path);  // a plain one

// With all that are missing above it. No error if it is there already. What it makes is on the disk
// afterwards.
void make_folders(const std::string& path);
// One folder, which must not exist.
void make_folder(const std::string& path);

// Names of the entries, sorted, without "." and "..".
std::vector<std::string> names_in(const std::string& folder);

// Entries that were made, renamed or removed in it are on the disk afterwards, as far as the file system can
// sync a folder.
void sync_folder(const std::string& path);

// Atomic; a file at `to` is replaced, a folder that is not empty is an error.
void rename_path(const std::string& from, const std::string& to);
// Both names change places in one step. False where the file system cannot do that.
bool exchange_paths(const std::string& a, const std::string& b);

// Removes the files in the folder, then the folder. A folder inside it is an error, and stays.
void remove_flat_folder(const std::string& path);

}  // namespace lockstep

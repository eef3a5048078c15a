// Folders: functions that create, list, rename, remove and sync them.
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
bool is_file(const std::string& path);  // a regular one

// Creates the folder and all missing folders above it, and syncs what it creates. No error if the folder
// exists.
void make_folders(const std::string& path);
// Creates one folder, which must not exist.
void make_folder(const std::string& path);

// Names of the entries, sorted, without "." and "..".
std::vector<std::string> names_in(const std::string& folder);

// Afterwards all entries that were made, renamed or removed in it are on the disk, if the file system can
// sync folders.
void sync_folder(const std::string& path);

// Atomic. Replaces a file at `to`; a non-empty folder there is an error.
void rename_path(const std::string& from, const std::string& to);
// Swaps two names in one step. Returns false if the file system cannot.
bool exchange_paths(const std::string& a, const std::string& b);

// Removes the files in the folder, then the folder. A folder inside it is an error and stays.
void remove_flat_folder(const std::string& path);

}  // namespace lockstep

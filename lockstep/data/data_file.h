// Where the files of a data set are on this machine.
//
//   const std::string folder = find_data_folder("cifar10", {"test_batch.bin"}, {.directory = option_data});
//   const std::string file = data_file(folder, "test_batch.bin");     // ".../test_batch.bin" or ".../test_batch.bin.gz"
#pragma once

#include <string>
#include <vector>

namespace lockstep {

// The path of one file in `directory`, plain or .gz; empty when neither is there.
std::string data_file(const std::string& directory, const std::string& name);

// The same, but throws SystemError naming `dataset` and both names when neither is there.
std::string existing_data_file(const std::string& dataset, const std::string& directory,
                               const std::string& name);

struct FindDataOptions {
  std::string directory = {};  // --data DIR; "": look in the usual places
  std::string checkout = ".";  // the folder with data/
};

// The first of these folders that has all `files`, plain or .gz: `directory` (no other if it is given), $LOCKSTEP_DATA/NAME,
// CHECKOUT/data/NAME. Throws InvalidArgument that says where it looked and what is missing in each; `hint` goes at the end.
std::string find_data_folder(const std::string& name, const std::vector<std::string>& files,
                             const FindDataOptions& options, const std::string& hint = "");

}  // namespace lockstep
